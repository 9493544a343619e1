"""Takes the files that are needed out of an archive, and nothing else.

Archives are read as streams, once, and never unpacked as a whole. What is written gets names of
our own, so no name in an archive can lead anywhere; an archive that tries is refused all the same,
since it is not what it should be.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from collab_common.errors import UserError
from collab_common.files import CHUNK, GZIP

_OPENERS: dict[bytes, Any] = {GZIP: gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_BROKEN = (
    *(EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(tarfile.TarError, zipfile.BadZipFile),
)
_ZIP = b"PK\x03\x04"
_AGAIN = "remove it and its entry in the lock file beside it, and fetch it again"
# Text shrinks to a third or a tenth, repetitive text to a thirtieth; bombs to a thousandth.
_MAX_RATIO = 100
_SMALL = 64 << 20  # bytes; an archive that holds no more than this is no bomb at any ratio


def is_page(start: bytes) -> bool:
    """Whether a file that starts so is what a server shows instead of a file."""
    return start.lstrip().lower().startswith((b"<!doctype html", b"<html"))


def is_whole(path: Path) -> bool:
    """Whether a file shows by itself that its end is there: as an intact gzip or zip file does."""
    with path.open("rb") as stream:
        start = stream.read(4)
    try:
        if start == _ZIP:
            with zipfile.ZipFile(path) as opened:
                return opened.testzip() is None
        if start.startswith(GZIP):
            with gzip.open(path) as content:
                while content.read(CHUNK):
                    continue
            return True
    except _BROKEN:
        return False
    return False


@dataclass(frozen=True)
class Member:
    """A file to take.

    Args:
        name: what it is to be called; no folders
        paths: what it may be called in the archive, the best first; leading folders may be missing
        optional: the archive need not have it
    """

    name: str
    paths: tuple[str, ...]
    optional: bool = False


def extract(archive: Path, members: Sequence[Member], folder: Path) -> dict[str, str]:
    """Writes `members` into `folder`; returns the path in the archive of each that was found.

    tar (plain, gzip, bzip2, xz) and zip are recognised by their content. A single gzipped file
    is an archive with one member, whose path is not compared.

    Raises:
        UserError: a member is missing, twice there, or no file; a name leads out of the archive;
            it is damaged, cut short, no archive at all, or holds suspiciously much.
    """
    taken: dict[str, tuple[int, str]] = {}
    try:
        for entry in _entries(archive):
            _take(archive, entry, members, folder, taken)
    except _BROKEN as error:
        raise UserError(f"is cut short or damaged ({error})", archive, _AGAIN) from None
    missing = [m for m in members if m.name not in taken and not m.optional]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UserError(
            f"has no member {missing[0].paths[0]}{more}",
            archive,
            "this is another archive, or another version of it",
        )
    return {name: path for name, (_, path) in taken.items()}


#: One entry of an archive: its name there, and its content, unless it is no file.
_Entry = tuple[str, IO[bytes] | None]


def _take(
    archive: Path,
    entry: _Entry,
    members: Sequence[Member],
    folder: Path,
    taken: dict[str, tuple[int, str]],
) -> None:
    name, content = entry
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise UserError(f"holds the unsafe path {name!r}", archive, "do not use it")
    for member in members:
        rank = _rank(path, member)
        if rank is None:
            continue
        if member.name in taken:
            before, other = taken[member.name]
            if before == rank:
                raise UserError(f"has two members {other} and {name}", archive)
            if before < rank:
                continue  # a better one is there already
        if content is None:
            raise UserError(f"member {name} is no file but a link or a device", archive)
        # tarfile and zipfile notice by themselves if a member ends too early
        part = folder / f".{member.name}.part"
        with part.open("wb") as stream:
            shutil.copyfileobj(content, stream, CHUNK)
        part.replace(folder / member.name)
        taken[member.name] = rank, name
        return


def _rank(path: PurePosixPath, member: Member) -> int | None:
    """Which of a member's paths this is; None if it is none of them."""
    for rank, wanted in enumerate(member.paths):
        parts = PurePosixPath(wanted).parts
        if path.parts[-len(parts) :] == parts:
            return rank
    return None


def _entries(archive: Path) -> Iterator[_Entry]:
    """The entries of an archive of any kind, each to be read before the next."""
    try:
        stream = archive.open("rb")
    except FileNotFoundError:
        raise UserError("no such file", archive) from None
    with stream:
        start = stream.read(512)
        stream.seek(0)
        if is_page(start):
            raise UserError("is an HTML page instead of an archive", archive, _AGAIN)
        if start.startswith(_ZIP):
            yield from _zip_entries(archive, stream)
            return
        for magic, opener in _OPENERS.items():
            if start.startswith(magic):
                with opener(stream) as plain:
                    if _is_tar(archive):
                        yield from _tar_entries(archive, plain)
                    else:
                        yield archive.stem, cast(IO[bytes], _Limited(archive, plain))
                return
        if start[257:262] != b"ustar":
            raise UserError("is no tar, zip or gzip archive", archive, _AGAIN)
        yield from _tar_entries(archive, stream)


def _is_tar(archive: Path) -> bool:
    return archive.name.endswith((".tgz", ".tbz2", ".txz")) or ".tar" in archive.suffixes


def _tar_entries(archive: Path, plain: BinaryIO) -> Iterator[_Entry]:
    limited = _Limited(archive, plain)
    with tarfile.open(fileobj=cast(IO[bytes], limited), mode="r|") as opened:
        for info in opened:
            if info.issparse():  # its holes are not in the archive
                limited.take(info.size)
            yield info.name, opened.extractfile(info) if info.isfile() else None
    # tarfile stops at the end mark; only at the stream's own end the checksum is compared
    while limited.read(CHUNK):
        continue


def _zip_entries(archive: Path, stream: BinaryIO) -> Iterator[_Entry]:
    limited = _Limited(archive, stream)
    with zipfile.ZipFile(stream) as opened:
        for info in opened.infolist():
            limited.take(info.file_size)
            is_link = (info.external_attr >> 16) & 0o170000 == 0o120000
            if info.is_dir() or is_link:
                yield info.filename, None
            else:
                with opened.open(info) as content:  # reads no more than file_size, compares the CRC
                    yield info.filename, content


class _Limited:
    """A stream that gives no more bytes than an honest archive of this size holds.

    It has read() alone: tarfile and shutil call nothing else.
    """

    def __init__(self, archive: Path, stream: BinaryIO) -> None:
        self._archive, self._stream = archive, stream
        self._limit = max(_SMALL, _MAX_RATIO * archive.stat().st_size)
        self._taken = 0

    def take(self, size: int) -> None:
        """Counts what is read, here or elsewhere."""
        self._taken += size
        if self._taken > self._limit:
            what = f"unpacks to more than {self._limit:,} bytes: not a text archive"
            raise UserError(what, self._archive)

    def read(self, size: int) -> bytes:
        block = self._stream.read(size)
        self.take(len(block))
        return block
