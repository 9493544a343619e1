"""Writes files so that a name always stands for a complete file.

The content goes to a neighbour called `NAME.1a2b3c4d.partial`, is forced to the disk and
checked, and only then takes the name over. Whoever is killed on the way leaves the former
file as it was, and a partial one that the next write into the same folder removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable
from typing import BinaryIO

PARTIAL = re.compile(r".+\.[0-9a-f]{8}\.partial")


def write(
    path: str | os.PathLike[str],
    fill: Callable[[BinaryIO], object],
    check: Callable[[str], object] | None = None,
) -> None:
    """Writes `path` through `fill(file)`; `check(partial_path)` may still refuse the result.

    Whatever is raised, OSError or what `fill` and `check` raise, a former `path` is left as it was.
    """
    path = os.path.abspath(path)
    remove_leftovers(os.path.dirname(path))
    file = _new_partial(path)
    partial = file.name
    try:
        with file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
            if size != file.tell():
                raise OSError(f"{size} of {file.tell()} bytes reached the disk")
            if check is not None:
                check(partial)
            os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)
        raise
    sync(os.path.dirname(path))  # the rename must outlast a power cut, too


def copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copies a file like `write`, with its times, so that a copy does not look newer.

    A hard link would be cheaper, but `cp new.pt checkpoint_last.pt` writes into the file
    that it finds and would then change every other name of it, too.
    """

    def fill(file: BinaryIO) -> None:
        with open(source, "rb") as original:
            shutil.copyfileobj(original, file, length=1 << 20)

    def check(partial: str) -> None:
        if os.path.getsize(partial) != os.path.getsize(source):
            raise OSError(f"{os.fspath(source)} changed while it was copied")
        shutil.copystat(source, partial)

    write(target, fill, check)


def remove_leftovers(folder: str) -> None:
    """Removes the partial files whose writers are dead."""
    for name in os.listdir(folder):
        if not PARTIAL.fullmatch(name):
            continue
        path = os.path.join(folder, name)
        # FileNotFoundError: its writer has just finished. PermissionError: it is somebody else's.
        # Open for writing: NFS has no exclusive lock otherwise.
        with contextlib.suppress(FileNotFoundError, PermissionError), open(path, "r+b") as file:
            if _lock(file):
                os.remove(path)


def _new_partial(path: str) -> BinaryIO:
    """A new partial file, locked until it is closed, which tells a living writer from a leftover.

    (Where the file system has no locks, leftovers stay.)
    """
    while True:
        file = open(f"{path}.{uuid.uuid4().hex[:8]}.partial", "xb")  # noqa: SIM115 (who calls closes)
        _lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # before it was locked, another writer has taken it for a leftover


def _lock(file: BinaryIO, *, wait: bool = False) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another process has it, or the file system knows no locks
        return False
    return True


def sync(path: str | os.PathLike[str]) -> None:
    """Forces a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
