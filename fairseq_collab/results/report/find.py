"""Runs at any depth below some folders, and names for them that tell nothing of the machine."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from collab_common.command import check_folder
from collab_common.errors import UserError
from fairseq_collab.runs.run import Run

#: An absolute path inside a text, in quotes or not; not ``d/H``, ``1/2`` or ``raw/test.de``.
_ABSOLUTE = re.compile(
    r"""(?<=')/[^']+(?=')|(?<=")/[^"]+(?=")|"""
    r"""((?<=://)|(?<![\w.~}/]))/(?:[^\s/'"(),:;=]+/)+[^\s/'"(),:;=]*"""
)


def find(folders: Sequence[Path]) -> tuple[dict[str, Run], list[str]]:
    """All runs below the folders by name, each once; and a line for each folder that is none.

    A name is that of the folder around the run, in short, and its own.
    """
    found: dict[Path, Run] = {}
    strays: list[Path] = []
    for folder in folders:
        check_folder(folder)
        below = list(_below(folder.resolve(), strays))
        if not below:
            todo = "give folders of runs that fairseq-collab sweep made"
            raise UserError("no runs in it", where=folder, todo=todo)
        found |= {run.folder: run for run in below}
    shown = names({path.parent for path in (*found, *strays)})
    named = {f"{shown[path.parent]}/{path.name}": run for path, run in found.items()}
    lines = [
        f"{shown[path.parent]}/{path.name}: has a score.json, but no config.yaml"
        for path in sorted(set(strays))
    ]
    return dict(sorted(named.items(), key=lambda one: one[0].rpartition("/"))), lines


def _below(folder: Path, strays: list[Path]) -> Iterator[Run]:
    """Runs at any depth; what is inside a run is its own.  ``strays`` gets scores of no run."""
    seen: set[Path] = set()
    for path, folders, files in os.walk(folder, followlinks=True):
        here = Run(Path(path).resolve())
        if here.folder in seen:  # a link may lead to a folder that it is in
            folders.clear()
            continue
        seen.add(here.folder)
        if here.config_file.name in files:
            folders.clear()
            yield here
        elif here.score_file.name in files:
            strays.append(here.folder)
        folders.sort()


def names(folders: Iterable[Path]) -> dict[Path, str]:
    """The last parts of each path: those below what all share, two if these tell them apart.

    One folder alone has its own name.
    """
    paths = sorted(folders)
    shared = Path(os.path.commonpath(paths)) if len(paths) > 1 else paths[0].parent
    parts = {path: path.relative_to(shared).parts or (path.name,) for path in paths}
    for most in range(2, 1 + max(2, *(len(found) for found in parts.values()))):
        cut = {path: "/".join(found[-most:]) for path, found in parts.items()}
        if len(set(cut.values())) == len(cut):
            break
    return cut


def command_text(arguments: Sequence[str] | None) -> str | None:
    """A command as it is typed, absolute paths cut to their ends; None for none."""
    if not arguments:
        return None
    return shlex.join(portable(str(argument)) for argument in arguments)


def shortened(path: str) -> str:
    """``.../trained/average.pt`` of an absolute path: its end, without the first two folders."""
    parts = PurePosixPath(path).parts[1:]
    return "/".join(("...", *parts[-min(2, max(1, len(parts) - 2)) :]))


def portable(text: str) -> str:
    """A text without the absolute paths in it."""
    return _ABSOLUTE.sub(lambda match: shortened(match[0]), text)
