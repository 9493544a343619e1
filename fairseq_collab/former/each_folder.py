"""Tables of folders of runs, one each, as the recipes of earlier versions wanted them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from collab_common import main as fairseq_collab
from fairseq_collab.runs.run import Run, runs_under


def tables(folders: Iterable[Path], mend: Callable[[Run], None], out: Path, *options: str) -> int:
    """``fairseq-collab table --x none`` of each, in a folder of its name.

    Args:
        mend: gives a record of an earlier version what it lacks.
        options: more of the command.
    """
    status = 0
    for folder in folders:
        for one in runs_under(folder):
            mend(one)
        where = ("--out", str(out / folder.name))
        status |= fairseq_collab.main(["table", str(folder), "--x", "none", *options, *where])
    return status
