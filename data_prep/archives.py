"""Published archives: download, check the hash, extract the files that are needed."""

from __future__ import annotations

import lzma
import sys
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

from collab_common.errors import UserError

TRIES = 3
TIMEOUT = 30.0  # seconds to wait for the next byte
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError)


@dataclass(frozen=True)
class Archive:
    """A published archive.

    Args:
        members: the needed files by their names after extraction, with their paths in the archive,
            where leading folders may be missing
        known_hash: ``ALGORITHM:HEX``, for example ``md5:88ba...``; None accepts any file
        optional: names of members that the archive need not have
    """

    name: str
    url: str
    members: Mapping[str, str]
    known_hash: str | None = None
    optional: frozenset[str] = frozenset()


def fetch(url: str, path: Path, known_hash: str | None = None) -> Path:
    """Download ``url`` to ``path``, unless the file exists (with the known hash, if there is one).

    The file gets its name when it is complete.

    Raises:
        UserError: the download fails, or its hash differs.
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
        raise UserError(f"the download is not the published file ({error})", url) from None
    return path


def check_hash(path: Path, known_hash: str | None) -> None:
    """Raise UserError unless the file exists and has the known hash, if there is one."""
    if not path.is_file():
        raise UserError("file not found", path)
    if known_hash is None:
        return
    algorithm, _, expected = known_hash.partition(":")
    if (actual := pooch.file_hash(str(path), alg=algorithm)) != expected:
        raise UserError(
            f"is not the published file: its {algorithm} is {actual}, not {expected}", path
        )


def extract(path: Path, archive: Archive, folder: Path) -> None:
    """Extract the members of the archive at ``path`` into ``folder``.

    ``tarfile``'s filter "data" rejects devices, and names and links that lead out of the folder.

    Raises:
        UserError: a member is missing or unsafe, or the archive is damaged.
    """
    missing = set(archive.members) - archive.optional
    try:
        with tarfile.open(path, "r|*") as opened:
            for info in opened:
                for name, member in archive.members.items():
                    if not f"/{info.name}".endswith(f"/{member}"):
                        continue
                    tarfile.data_filter(info, str(folder))  # under its name in the archive
                    if not info.isfile():
                        raise UserError(f"its member {info.name} is not a regular file", path)
                    opened.extract(info.replace(name=name, deep=False), folder, filter="data")
                    missing.discard(name)
    except _BROKEN as error:
        todo = "remove it and download it again"
        raise UserError(f"the tar archive is damaged ({error})", path, todo) from None
    for name in sorted(missing):
        todo = "give the published archive, in its published version"
        raise UserError(f"has no member {archive.members[name]}", path, todo)
