#!/usr/bin/env bash
# Checks a GPU in some minutes: attention in float32, float16 and bfloat16, beam search, training in
# each number format, steps of fixed shapes (CUDA graphs), and the speed of the fused kernel, of live
# slots and of fixed steps.
# Prints a line per check, ok or FAILED with the finding; the exit status is 1 if a check fails.
# `fairseq-collab bench` measures more of the speed.
#
#   bash recipes/gpu_check.sh               on the GPU
#   DEVICE=cpu bash recipes/gpu_check.sh    the checks that a CPU can run
#   QUICK=1 bash recipes/gpu_check.sh       at the smallest sizes, one architecture
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Any environment with torch and fairseq will do.
python=$(command -v python || command -v python3 || true)
has='import sys; from importlib.util import find_spec; sys.exit(not (find_spec("torch") and find_spec("fairseq")))'
if [ -z "$python" ] || ! "$python" -c "$has"; then
    activate
    python=python
fi
if [ "${DEVICE:-cuda}" = cuda ] &&
    ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "gpu_check: torch finds no GPU; DEVICE=cpu runs the checks on the CPU" >&2
    exit 1
fi
export PYTHONPATH=$PWD:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}
exec "$python" -m device_checks --device "${DEVICE:-cuda}" ${QUICK:+--quick}
