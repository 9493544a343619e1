#!/usr/bin/env bash
# Checks a GPU in under ten minutes: attention in float32, float16 and bfloat16, beam search, trainings
# in each number format, two processes, the fused kernel, the benchmark. A line each: ok, or FAILED
# with what was found; the exit status says whether all is well.
#
#   bash recipes/gpu_check.sh               on the GPU
#   DEVICE=cpu bash recipes/gpu_check.sh    what a CPU can do of it
#   QUICK=1 bash recipes/gpu_check.sh       at the smallest sizes
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# An environment that has torch and fairseq already will do, whoever made it.
python=$(command -v python || command -v python3 || true)
has='import sys; from importlib.util import find_spec; sys.exit(not (find_spec("torch") and find_spec("fairseq")))'
if [ -z "$python" ] || ! "$python" -c "$has"; then
    activate
    python=python
fi
if [ "${DEVICE:-cuda}" = cuda ] &&
    ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "gpu_check: torch finds no GPU here; DEVICE=cpu runs what a CPU can" >&2
    exit 1
fi
export PYTHONPATH=$PWD:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}
exec "$python" -m device_checks --device "${DEVICE:-cuda}" ${QUICK:+--quick}
