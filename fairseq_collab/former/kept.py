"""Heads kept against BLEU: runs of ``recipes/head_pruning.sh``, those of earlier versions, too.

Now ``fairseq-collab table FOLDER --x none --columns bleu,heads_by_site`` of each folder of runs.
Records that do not say their heads by site get them from the model.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from collab_common import main as fairseq_collab
from collab_common.command import run
from collab_common.errors import UserError
from fairseq_collab.runs.run import Run, runs_under
from fairseq_collab.runs.trained import model_figures

FOLDERS = ("gated/all", "gated/encoder", "tuned", "scratch")
COLUMNS = "bleu,chrf,heads_by_site,parameters,train_updates"


def tables(folders: Iterable[Path], mend: Callable[[Run], None], out: Path, *options: str) -> int:
    """``fairseq-collab table --x none`` of each, in a folder of its name, which no two may share.

    Args:
        mend: gives a record of an earlier version what it lacks.
        options: more of the command.
    """
    status, folders = 0, list(folders)
    names = [folder.name for folder in folders]
    for folder in folders:
        if names.count(folder.name) > 1:
            what = "another folder has this name, too: one table would take the other's place"
            raise UserError(what, folder, "rename one, or give one at a time and another --out")
    for folder in folders:
        for one in runs_under(folder):
            mend(one)
        where = ("--out", str(out / folder.name))
        status |= fairseq_collab.main(["table", str(folder), "--x", "none", *options, *where])
    return status


def add_heads(run: Run) -> None:
    """Make the record of a finished run say its heads by site."""
    record = run.score()
    if record and record.heads_by_site is None and run.average.exists():
        found = model_figures(run, run.config())["heads_by_site"]
        run.finish(dataclasses.replace(record, heads_by_site=found))


def kept(out: Path, baseline: Path) -> int:
    """A table of the baseline and of each folder of runs that there is."""
    folders = [baseline, *(out / name for name in FOLDERS if (out / name).is_dir())]
    if len(folders) == 1:
        raise UserError("no runs in it", where=out, todo="give the OUT of recipes/head_pruning.sh")
    return tables(folders, add_heads, out / "tables", "--against", "none", "--columns", COLUMNS)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_collab.evaluation.kept",
        description="Tables of recipes/head_pruning.sh: heads kept against BLEU.",
    )
    parser.add_argument("out", type=Path, help="the recipe's OUT")
    parser.add_argument(
        "--baseline", type=Path, required=True, metavar="DIR", help="runs that it has started from"
    )
    args = parser.parse_args()
    return run(parser.prog, lambda: kept(args.out, args.baseline))


if __name__ == "__main__":
    sys.exit(main())
