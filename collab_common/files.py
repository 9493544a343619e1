"""Files: text with or without gzip, hashes, atomic writes, JSON, locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from collab_common import atomic
from collab_common.errors import UserError

CHUNK = 1 << 20
LOCKS = "FAIRSEQ_COLLAB_LOCKS"  # environment variable: 0 for file systems without locks
GZIP = b"\x1f\x8b"  # the first bytes of a gzip file


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[BufferedReader]:
    """Open a file for reading, through gzip if its name or its first bytes say so.

    Raises:
        UserError: the file is missing, or is a broken gzip file.
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise UserError("file not found", path) from None
    try:
        with stream:
            # Members of giga-fren.tar are gzipped under other names; UTF-8 text never starts so.
            if path.suffix == ".gz" or stream.peek(2)[:2] == GZIP:
                content: BufferedReader = BufferedReader(gzip.GzipFile(fileobj=stream))
                with content:
                    yield content
            else:
                yield stream
    except EOFError:
        raise UserError("the gzip file is truncated", path, "download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"the gzip file is damaged ({error})", path, "download it again") from None


def rows_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, gzipped or not, with their newlines; the last may lack its own."""
    with open_bytes(path) as stream:
        yield from stream


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, gzipped or not, without their newlines.

    Raises:
        UserError: a line is not UTF-8; the error has its number.
    """
    for number, row in enumerate(rows_of(path), 1):
        try:
            yield row.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            problem = f"invalid UTF-8: byte 0x{row[error.start]:02X}"
            raise UserError(problem, f"{path}:{number}", "convert the text to UTF-8") from None


def count_lines(path: Path) -> int:
    """Count the lines of a text, gzipped or not; the last one with or without its newline."""
    with open_bytes(path) as stream:
        return sum(1 for _ in stream)


# ---- hashes --------------------------------------------------------------------------------------


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as it is on the disk."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_text(path: Path) -> str:
    """Return the SHA-256 of a text, which is the same for the plain and for the gzipped file."""
    with open_bytes(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fingerprint_tree(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the hash and size of every file below a folder, by its path relative to the folder."""
    return {
        path.relative_to(folder).as_posix(): {"sha256": sha256(path), "bytes": path.stat().st_size}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


# ---- results -------------------------------------------------------------------------------------


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file atomically; bytes of file names that are not UTF-8 become escapes."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    atomic.write(path, lambda file: file.write(data))


def user_cache() -> Path:
    """Return the user's folder for files that can be made again: ``~/.cache/fairseq_collab``."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # this user has none
        raise OSError(errno.ENOENT, "there is no home folder: set HOME or XDG_CACHE_HOME") from None
    return folder / "fairseq_collab"


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically, with line breaks so that people can read it."""
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def updated(path: Path, default: Any, write: Callable[[Path, Any], None]) -> Iterator[Any]:
    """Yield the content of a JSON file, or ``default``, to be changed in place; then write it.

    Other processes that update the file wait meanwhile, so that no change is lost.
    """
    with contextlib.ExitStack() as lock:
        while True:
            try:
                lock.enter_context(locked(path.with_name(f"{path.name}.lock")))
                break
            except Busy:
                time.sleep(0.05)
        content = read_json(path) if path.exists() else default
        yield content
        write(path, content)


def write_contents(folder: Path, contents: Mapping[str, bytes | str]) -> None:
    """Write files of results into a folder, given by name; the folder is created if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomic(folder / name, content)


def read_json(path: Path, todo: str = "delete it and start again") -> Any:
    """Read a JSON file.

    Raises:
        UserError: the file is not JSON.
        OSError: the file is missing.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # malformed JSON or invalid UTF-8
        raise UserError(f"not JSON ({error})", path, todo) from None


def read_versioned(path: Path, version: int, content_name: str, todo: str) -> dict[str, Any]:
    """Read a JSON object with this ``content_name`` and ``version``.

    Raises:
        UserError: the file is not JSON, or has another content or version.
        OSError: the file is missing.
    """
    content = read_json(path, todo)
    if not isinstance(content, dict) or content.get("version") != version:
        raise UserError(f"is not a {content_name} file of version {version}", path, todo)
    return content


# ---- locks ---------------------------------------------------------------------------------------


class Busy(UserError):
    """Another process has the lock."""


@contextlib.contextmanager
def locked(path: Path, *, keep: bool = False) -> Iterator[int]:
    """Hold a lock file with our process id in it; yield its descriptor, for children to inherit.

    The kernel's lock decides, not the presence of the file: the lock ends with the last process
    that has the descriptor.  So nobody ever has to remove an old lock file by hand, and a child
    that outlives its killed parent still holds the lock.

    Args:
        keep: do not remove the file afterwards: for locks that a child may hold longer than we do

    Raises:
        Busy: another process has the lock.
    """
    handle = _take_lock(path)
    try:
        yield handle
    finally:
        if not keep:
            path.unlink(missing_ok=True)
        os.close(handle)


def _take_lock(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.environ.get(LOCKS) != "0":
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            problem = f"another process (pid {holder}) is using it"
            raise Busy(problem, path, "wait for it to end, or choose another folder") from None
        except OSError as error:
            os.close(handle)
            problem = f"the file system does not support locks ({error.strerror})"
            todo = f"use a folder on another disk, or set {LOCKS}=0 and start nothing twice"
            raise UserError(problem, path, todo) from None
        if atomic.is_named(handle, path):
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode("ascii"))
            return handle
        os.close(handle)  # the holder removed the file between our open and our lock
