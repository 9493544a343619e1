"""ROUGE of the runs of ``recipes/grouped_summaries.sh``, those of earlier versions, too.

Now ``fairseq-collab table RUNS --x none --columns rouge.R1,rouge.R2,rouge.RL``.  Runs whose records
have no ROUGE yet get it from their translations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from collab_common import main as fairseq_collab
from collab_common.command import run
from fairseq_collab.runs.former import add_rouge
from fairseq_collab.runs.run import find_runs

PROG = "fairseq_collab.evaluation.rouge_table"
COLUMNS = "rouge.R1,rouge.R2,rouge.RL,parameters,key_bytes_per_target_token"


def tables(folders: Sequence[Path], baseline: str, out: Path) -> int:
    """A table of each folder of runs, in a folder of its name."""
    for one in find_runs(folders):
        add_rouge(one)
    status = 0
    for folder in folders:
        options = ["--x", "none", "--against", baseline, "--columns", COLUMNS]
        where = ["--out", str(out / folder.name)]
        status |= fairseq_collab.main(["table", str(folder), *options, *where])
    return status


def main() -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(prog=PROG, description="A table of runs' ROUGE.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folders of runs")
    parser.add_argument("--against", default="concatenated", metavar="METHOD", help="the baseline")
    parser.add_argument("--out", type=Path, required=True, help="folders of tables go here")
    args = parser.parse_args()
    return run(PROG, lambda: tables(args.runs, args.against, args.out))


if __name__ == "__main__":
    sys.exit(main())
