"""Atomic writes: a name always means a complete file.

The content is written to ``NAME.partial`` and forced to the disk; only then is that file renamed to
NAME.  If the writer dies, the old file is untouched, and the next writer reuses the partial file.
A symbolic link is kept: the file that it points to is written, in the folder of that file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable
from typing import BinaryIO


def write(path: str | os.PathLike[str], fill: Callable[[BinaryIO], object]) -> None:
    """Write ``path`` atomically: ``fill(file)`` writes the content into a file that is given to it.

    On any error, an old ``path`` is untouched.
    """
    path = os.path.realpath(path)
    partial = f"{path}.partial"
    with _open_alone(partial) as file:
        try:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException as error:
            os.remove(partial)
            if isinstance(error, OSError):  # the error of a full disk names no file
                error.filename = error.filename or path
            raise
    sync(os.path.dirname(path))  # the rename must also outlast a power cut


def copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy a file atomically."""
    with open(source, "rb") as original:
        write(target, lambda file: shutil.copyfileobj(original, file, length=1 << 20))


def _open_alone(partial: str) -> BinaryIO:
    """Open a partial file, empty and locked until it is closed: a second writer waits.

    On a file system without locks, the user must not start two writers of one file.
    """
    while True:
        file = os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if is_named(file.fileno(), partial):
            file.truncate(0)
            return file
        file.close()  # its writer has finished and renamed it between our open and our lock


def is_named(descriptor: int, path: str | os.PathLike[str]) -> bool:
    """Return whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def sync(path: str | os.PathLike[str]) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
