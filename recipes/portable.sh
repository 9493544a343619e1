# What differs between macOS and Linux. Sourced by common.sh and stages.sh.
# shellcheck shell=bash

# Before bash 4.4 (macOS has 3.2), an array without elements counts as an unbound variable.
(none=() && : "${none[@]}") 2>/dev/null || set +u

# cores: how many this process may use.
cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }

# real PATH: absolute, links followed, whether it is there or not.
real() { [ -n "$1" ] && python3 -c 'import os, sys; print(os.path.realpath(sys.argv[1]))' "$1"; }
