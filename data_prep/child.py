"""Child processes that cannot outlive us."""

from __future__ import annotations

import ctypes
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
            preexec_fn=die_with_parent,
            check=False,
        ).returncode
        if status == 0:
            return
        output.seek(0)
        last = deque((line.decode("utf-8", "replace").strip() for line in output), _LAST_LINES)
    raise UserError(f"{module} failed with status {status}: {' | '.join(last)}")


def die_with_parent() -> None:
    """In a child: be killed when the parent dies, lest it write into a folder given up.

    Does nothing but on Linux, which alone knows this.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def die_with(parent: int) -> None:
    """In a child, if it does not start with `die_with_parent`: the same, for a parent's pid."""
    die_with_parent()
    if sys.platform == "linux" and os.getppid() != parent:  # it died before we asked to be told
        os._exit(1)
