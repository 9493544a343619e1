#!/usr/bin/env bash
# Set up, then check style and types and run the whole suite.
#
#   bash recipes/test.sh                 everything
#   bash recipes/test.sh --fast          without the tests marked as slow, which are most of the time
#   bash recipes/test.sh tests/unit      other arguments go to pytest
#
# Tests on real corpora need FAIRSEQ_COLLAB_DATA (default: ../shared/data) and are skipped without.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

chosen=()
if [ "${1:-}" = --fast ]; then
    chosen=(-m "not slow and not gpu")
    shift
fi
unset PYTHONDONTWRITEBYTECODE   # each file is compiled once, not by each of hundreds of commands
activate --dev

ruff check .
ruff format --check .
# Types are checked during the tests, which leave a core idle where they wait.
types=$(mktemp)
mypy >"$types" 2>&1 &
mypy=$!
trap 'kill $mypy 2>/dev/null || true; rm -f "$types"' EXIT
# One worker a core: the tests run the commands on one thread each. The order is tests/conftest.py's.
status=0
pytest --numprocesses auto --dist loadfile --no-loadscope-reorder "${chosen[@]}" "$@" || status=$?
wait $mypy || status=$?
cat "$types"
exit $status
