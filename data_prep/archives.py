"""Takes the files that are needed out of a tar archive, and nothing else.

`tarfile`'s filter "data" rejects devices, and names and links that lead out of the folder.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from collab_common.errors import UserError

_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError)


@dataclass(frozen=True)
class Member:
    """A file to take.

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


def extract(archive: Path, members: Sequence[Member], folder: Path) -> None:
    """Writes `members` into `folder`, under names of our own.

    Raises UserError if a member is missing or unsafe, or the archive is damaged or no archive.
    """
    taken: set[str] = set()
    try:
        with tarfile.open(archive, "r|*") as opened:
            for info in opened:
                for member in members:
                    if not member.is_at(PurePosixPath(info.name)):
                        continue
                    tarfile.data_filter(info, str(folder))  # as it is named in the archive
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
        todo = "this is another archive, or another version of it"
        raise UserError(f"has no member {missing[0].path}", archive, todo)
