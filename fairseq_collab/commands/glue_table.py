"""``fairseq-collab glue-table``: runs of ``fairseq-collab glue`` in a table, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collab_common.files import as_json, write_contents
from fairseq_collab.commands import options
from fairseq_collab.results import glue


def main(argv: Sequence[str]) -> int:
    parser = options.parser_of(
        "glue-table",
        "Runs of fairseq-collab glue in one table: a row a model and key dimension, a column a "
        "task; and the paper's.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="runs, folders of runs")
    options.add_output(
        parser, "--out", "DIR", "writes table.md and table.json here", required=False
    )
    args = parser.parse_args(argv)
    runs, unfinished = glue.read(args.runs)
    text = glue.markdown(runs, unfinished)
    if args.out:
        write_contents(args.out, {"table.md": text, "table.json": as_json(glue.content(runs))})
    print(text, end="")
    return 0
