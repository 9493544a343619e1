"""ROUGE of the runs of ``recipes/grouped_summaries.sh``, those of earlier versions, too.

Now ``fairseq-collab table RUNS --x none --columns rouge.R1,rouge.R2,rouge.RL``.  Runs whose records
have no ROUGE yet get it from their translations.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from collab_common.command import run
from fairseq_collab.former.kept import tables
from fairseq_collab.metrics.rouge import rouge
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.translations import read_system

PROG = "fairseq_collab.evaluation.rouge_table"
COLUMNS = "rouge.R1,rouge.R2,rouge.RL,parameters,key_bytes_per_target_token"


def add_rouge(run: Run) -> None:
    """Make a finished run of summaries, scored as a translation, say so: with ROUGE in its record.

    UserError if its translations are not those that were scored.
    """
    record = run.score()
    if record and record.task == "translation":
        system = read_system(run.folder)
        rouges = rouge(system.hypotheses, system.references)
        found: dict[str, Any] = {"rouge": rouges.scores, "rouge_signature": rouges.signature}
        run.finish(dataclasses.replace(record, task="summarization", **found))


def main() -> int:
    parser = argparse.ArgumentParser(prog=PROG, description="A table of runs' ROUGE.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folders of runs")
    parser.add_argument("--against", default="concatenated", metavar="METHOD", help="the baseline")
    parser.add_argument("--out", type=Path, required=True, help="folders of tables go here")
    args = parser.parse_args()
    options = ("--against", args.against, "--columns", COLUMNS)
    return run(PROG, lambda: tables(args.runs, add_rouge, args.out, *options))


if __name__ == "__main__":
    sys.exit(main())
