"""Published archives: download, check the hash, extract the files that are needed."""

from __future__ import annotations

import lzma
import sys
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pooch
import requests

from collab_common.errors import UserError

TRIES = 3
TIMEOUT = 30.0  # seconds without a byte
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError)


@dataclass(frozen=True)
class Member:
    """A file of an archive.

    Args:
        name: file name after extraction; no folders
        path: path in the archive; leading folders may be missing
        optional: the archive need not have it
    """

    name: str
    path: str
    optional: bool = False

    def is_at(self, path: PurePosixPath) -> bool:
        wanted = PurePosixPath(self.path).parts
        return path.parts[-len(wanted) :] == wanted


@dataclass(frozen=True)
class Archive:
    """A published archive: address, needed members, hash (ALGORITHM:HEX) if one is published."""

    name: str
    url: str
    members: tuple[Member, ...]
    known_hash: str | None = None


def fetch(url: str, path: Path, known_hash: str | None = None) -> Path:
    """Downloads `url` to `path`, unless the file exists; the name appears with the whole file.

    Args:
        known_hash: ALGORITHM:HEX, for example md5:88ba...; None accepts any file

    Raises UserError if the download fails or the hash differs.
    """
    source = pooch.create(
        path=path.parent,
        base_url="",
        registry={path.name: known_hash},
        urls={path.name: url},
        retry_if_failed=TRIES - 1,
    )
    loader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT)
    try:
        source.fetch(path.name, downloader=loader)
    except requests.RequestException as error:
        todo = "try again later, or give --from DIR with the file in it"
        raise UserError(f"cannot be downloaded ({error})", url, todo) from None
    except ValueError as error:
        raise UserError(f"is not the published file ({error})", url) from None
    return path


def check_hash(path: Path, known_hash: str | None) -> None:
    """Raises UserError unless the file exists and has the hash, where one is known."""
    if not path.is_file():
        raise UserError("file not found", path)
    if known_hash is None:
        return
    algorithm, _, expected = known_hash.partition(":")
    if (found := pooch.file_hash(str(path), alg=algorithm)) != expected:
        raise UserError(f"{algorithm} {found} is not the published {expected}", path)


def extract(archive: Path, members: Sequence[Member], folder: Path) -> None:
    """Writes `members` into `folder`, under their `name`.

    `tarfile`'s filter "data" rejects devices, and names and links that lead out of the folder.
    Raises UserError if a member is missing or unsafe, or the archive is damaged.
    """
    taken: set[str] = set()
    try:
        with tarfile.open(archive, "r|*") as opened:
            for info in opened:
                for member in members:
                    if not member.is_at(PurePosixPath(info.name)):
                        continue
                    tarfile.data_filter(info, str(folder))  # under its name in the archive
                    if not info.isfile():
                        raise UserError(f"member {info.name} is no file", archive)
                    named = info.replace(name=member.name, deep=False)
                    opened.extract(named, folder, filter="data")
                    taken.add(member.name)
    except _BROKEN as error:
        todo = "remove it and fetch it again"
        raise UserError(f"is no intact tar archive ({error})", archive, todo) from None
    missing = [one for one in members if one.name not in taken and not one.optional]
    if missing:
        todo = "give the published archive, in its published version"
        raise UserError(f"has no member {missing[0].path}", archive, todo)
