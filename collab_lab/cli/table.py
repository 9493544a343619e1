"""``fairseq-collab table``: show runs as a table and a figure, only from their ``score.json``.

Unfinished runs are listed but not averaged.  The order of the runs does not change the result.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from collab_common.files import write_contents
from collab_lab.cli import options

PROG = "fairseq-collab table"
#: File of the table, by format.
FILES = {"md": "table.md", "csv": "table.csv", "latex": "table.tex"}


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "table",
        "Print a table of runs, with one row per method and key width, or per value of --x: means "
        "and standard deviations over seeds. With --out, write it and a figure.",
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUNS", help="run folders, or their parents"
    )
    parser.add_argument(
        "--x",
        help="field of score.json, or option of the sweep, that differs from row to row; none: one "
        "row per method and setting, drawn against the number of parameters (default: key_dim, or "
        "none if some kind of heads has no key width, or more than one)",
    )  # fmt: skip
    parser.add_argument(
        "--columns", type=lambda text: tuple(text.split(",")), default=(), metavar="A,B,...",
        help="fields of score.json (bleu,valid_bits,train_seconds) or options of the sweep "
        "(default: scores and costs; in LaTeX as many of them as six columns hold)",
    )  # fmt: skip
    parser.add_argument(
        "--score", metavar="FIELD",
        help="field of score.json to test and draw, e.g. valid_bits (default: bleu for "
        "translation)",
    )  # fmt: skip
    parser.add_argument(
        "--against", metavar="ROW",
        help="baseline of the tests: method, or name of a row, e.g. 'concatenated, layers=2' "
        "(default: concatenated, if present); none for no tests",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("md", "csv", "latex"), default="md",
        help="Markdown, CSV of numbers, or LaTeX for one column of a paper, with the package "
        "booktabs (default: md)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder for the table, figure.svg and figure.pdf")
    options.add_force(parser)
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    from collab_lab.results import figure, table_text
    from collab_lab.results.table import read_table

    table = read_table(args.runs, args.x, args.against, args.columns, args.score)
    write = {"md": table_text.markdown, "csv": table_text.csv, "latex": table_text.latex}
    text = write[args.format](table)
    if args.format != "md":  # which has them in its text
        for line in (*table.warnings(), *table.left_out):
            print(f"{PROG}: {line}", file=sys.stderr)
    if args.out:
        files: dict[str, bytes | str] = {FILES[args.format]: text}
        drawn = figure.of_table(table)
        files |= {f"figure.{form}": figure.saved(drawn, form) for form in ("svg", "pdf")}
        options.check_new(args, *(args.out / name for name in files))
        write_contents(args.out, files)
    print(text, end="")
    return 0
