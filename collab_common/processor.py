"""What this machine's processor can do, by Linux: nothing here needs torch."""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path

#: The environment variable that chooses how linear maps are computed, see the room ``kernels``.
MATMUL = "FAIRSEQ_COLLAB_MATMUL"
#: Instructions for products of 8-bit integers, by Linux's names.
INT8_INSTRUCTIONS = ("avx512_vnni", "amx_int8")


@functools.cache
def cpuinfo() -> str:
    """All that Linux says of the processor; elsewhere its name."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:  # no Linux
        return platform.processor()


def name() -> str:
    """Its name, by which files of results call it."""
    found = re.search(r"^model name\s*: *(.+)$", cpuinfo(), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def cores() -> int:
    """Those that this process may use: a job of Slurm or a container may have few of many."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_intel() -> bool:
    """Whether it is one of Intel's."""
    return "GenuineIntel" in cpuinfo()


def int8_instructions() -> list[str]:
    """Those of :data:`INT8_INSTRUCTIONS` that it has."""
    words = {*cpuinfo().split()}
    return [name for name in INT8_INSTRUCTIONS if name in words]


def linear_maps() -> str:
    """What is chosen, and what could be, in a line."""
    asked = os.environ.get(MATMUL)
    chosen = f"{MATMUL}={asked}" if asked else f"float32 ({MATMUL} is not set)"
    found = int8_instructions()
    return f"{chosen}; int8 {f'possible, by {found[-1]}' if found else 'would be slower here'}"
