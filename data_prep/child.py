"""Child processes that cannot outlive us."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collab_common.errors import UserError

_PR_SET_PDEATHSIG = 1
_LAST_LINES = 5


def call(arguments: Sequence[str], **more: Any) -> int:
    """Runs a program that reads no input and dies with this process; returns its exit status."""
    die = functools.partial(die_with, os.getpid())
    return subprocess.run(
        arguments, stdin=subprocess.DEVNULL, preexec_fn=die, check=False, **more
    ).returncode


def run_module(module: str, arguments: list[str], folder: Path | None = None) -> None:
    """`python -m module arguments`, in `folder`; its last lines become a UserError if it fails."""
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile() as output:
        status = call(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        if status == 0:
            return
        output.seek(0)
        last = deque((line.decode("utf-8", "replace").strip() for line in output), _LAST_LINES)
    raise UserError(f"{module} failed with status {status}: {' | '.join(last)}")


def die_with(parent: int) -> None:
    """In a child: be killed when its parent dies, so that it does not write into a folder given up.

    Does nothing but on Linux, which alone knows this.

    Args:
        parent: its process id, taken before the child starts: by now it may be dead.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked for the signal
            os._exit(1)
