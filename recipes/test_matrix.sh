#!/usr/bin/env bash
# Tries the compatibility layer on every Python 3.10 to 3.13 that this machine has, with
# today's Hydra and with fairseq's own pins. Takes about ten minutes; pip downloads packages.
# Arguments go to pytest: `bash recipes/test_matrix.sh -k 3.12` runs a part.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash recipes/setup.sh --dev
exec "${VENV:-.venv}/bin/python" -m pytest -m matrix -ra tests/compat "$@"
