#!/usr/bin/env bash
# Set up, then check style and types and run the whole suite.
#
#   bash recipes/test.sh                 everything
#   bash recipes/test.sh --fast          without the tests marked as slow, which are most of the time
#   bash recipes/test.sh tests/unit      other arguments go to pytest
#
# Tests on real corpora need FAIRSEQ_COLLAB_DATA (default: ../shared/data) and are skipped without.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=recipes/common.sh
source recipes/common.sh

chosen=()
if [ "${1:-}" = --fast ]; then
    chosen=(-m "not slow and not matrix")
    shift
fi
activate --dev

ruff check .
ruff format --check .
mypy
# One worker a core: the tests run the commands on one thread each.
exec pytest --numprocesses auto --dist loadfile "${chosen[@]}" "$@"
