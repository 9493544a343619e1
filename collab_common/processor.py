"""What this machine's processor can do, by Linux: nothing here needs torch."""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path

#: The environment variable that chooses how linear maps are computed, see the room ``kernels``.
MATMUL = "FAIRSEQ_COLLAB_MATMUL"


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
