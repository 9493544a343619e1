"""Provenance of a result: commit, versions, hardware, date."""

from __future__ import annotations

import datetime
import functools
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

#: The environment variable that chooses how linear maps are computed, see ``cpu_kernels``.
MATMUL_ENV = "FAIRSEQ_COLLAB_MATMUL"
PACKAGES = ("fairseq", "torch", "sacrebleu", "sentencepiece", "fairseq-collab")


def circumstances(cpu: bool, gpus: int = 1) -> dict[str, Any]:
    """Return the present commit, versions, hardware and date.

    Args:
        cpu: whether no GPU was used.
        gpus: number of GPUs used, if there are any.
    """
    return {
        "commit": commit(),
        "versions": versions(*PACKAGES),
        "hardware": hardware(cpu, gpus),
        "date": today(),
    }


def hardware(cpu: bool, gpus: int = 1) -> str:
    """Return the GPU with its number, or the processor with the number of threads of a training."""
    import torch  # takes seconds, and preparing text needs none

    if torch.cuda.is_available() and not cpu:
        return f"{gpus} x " * (gpus > 1) + torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    number = f"{threads} thread{'s' * (threads > 1)}"
    return f"{processor_name()}, {os.cpu_count()} cores, {number} a training"


def commit(root: Path | None = None) -> str | None:
    """Return the project's git commit, marked if files differ from it; None outside a clone.

    Args:
        root: folder of the clone; default: that of this file.
    """
    root = root or Path(__file__).resolve().parent.parent
    # An installed copy may lie in somebody else's repository.
    if _git(root, "rev-parse", "--show-toplevel") != str(root):
        return None
    # Without tags, which may be moved, and are no commits.
    return _git(root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def _git(folder: Path, *command: str) -> str | None:
    """Return the output of git; None if it fails, or is not installed."""
    # GIT_DIR, which hooks of git have, would name another repository.
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("GIT_")}
    try:
        return subprocess.check_output(
            ["git", *command], cwd=folder, env=environment, stderr=subprocess.DEVNULL, text=True
        ).strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of installed packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def today() -> str:
    """Return the date in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


# ---- the processor, without torch ----------------------------------------------------------------


@functools.cache
def cpuinfo() -> str:
    """Return Linux's description of the processor; on other systems its name."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:  # no Linux
        return platform.processor()


def processor_name() -> str:
    """Return the processor's name."""
    name = re.search(r"^model name\s*: *(.+)$", cpuinfo(), re.MULTILINE)
    return name[1].strip() if name else platform.processor() or platform.machine()


def cores() -> int:
    """Return how many cores this process may use: in containers fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_intel() -> bool:
    """Return whether the processor is one of Intel's."""
    return "GenuineIntel" in cpuinfo()
