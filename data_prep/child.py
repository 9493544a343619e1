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
from pathlib import Path

from collab_common.errors import UserError

_PR_SET_PDEATHSIG = 1
_LAST_LINES = 5


def run_module(module: str, arguments: list[str], folder: Path | None = None) -> None:
    """`python -m module arguments`, in `folder`; its last lines become a UserError if it fails."""
    with tempfile.TemporaryFile() as output:
        status = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(die_with, os.getpid()),
            check=False,
        ).returncode
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
