"""Provenance of a result: commit, versions, hardware, date."""

from __future__ import annotations

import datetime
import functools
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

#: The environment variable that chooses how linear maps are computed, see ``cpu_kernels``.
MATMUL_ENV = "FAIRSEQ_COLLAB_MATMUL"
PACKAGES = ("fairseq", "torch", "sacrebleu", "sentencepiece", "fairseq-collab")
#: The folders of this project's code.
CODE = ("collab_common", "collab_lab", "data_prep", "fairseq_collab", "fairseq_compat")


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


def commit(root: Path | None = None) -> str:
    """Return the project's git commit; or what names the code where no commit does.

    ``0123456789ab-dirty-01234567`` is a commit from which files differ, with a hash of the code.
    Outside a clone, as in a ZIP, it is ``code-0123456789ab``.

    Args:
        root: folder of the clone; default: that of this file.
    """
    root = root or Path(__file__).resolve().parent.parent
    # An installed copy may lie in somebody else's repository.
    is_clone = _git(root, "rev-parse", "--show-toplevel") == str(root)
    # Without tags, which may be moved, and are no commits.
    describe = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    described = _git(root, *describe) if is_clone else None
    if described is None:
        return f"code-{hash_of_code(root)[:12]}"
    # It says nothing of new files, of which only code can change a result.
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--", *CODE)
    name = described.removesuffix("-dirty")
    return f"{name}-dirty-{hash_of_code(root)[:8]}" if new or name != described else name


def hash_of_code(root: Path, more: Iterable[Path] = ()) -> str:
    """Return a hash of the files of the packages in ``root``, as they are, and of more files."""
    files = [file for name in CODE for file in root.glob(f"{name}/**/*.[cp]*")]
    code = sorted(file for file in (*files, *more) if file.suffix in (".c", ".py"))
    hashes = (hashlib.sha256(file.read_bytes()).hexdigest() for file in code)
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


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
