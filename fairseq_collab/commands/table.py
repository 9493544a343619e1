"""``fairseq-collab table``: many runs in one table and one figure, made from run folders only.

Runs that are not finished are listed, never averaged in.  The same runs give the same bytes, in
whatever order they are given.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from collab_common.errors import UserError
from collab_common.files import write_contents
from fairseq_collab.results import against, figure
from fairseq_collab.results.rows import NO_X
from fairseq_collab.results.table import heading, markdown
from fairseq_collab.results.table_content import Table, as_csv, read_table


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab table",
        description="A table (and, with --out, a figure) of runs: one row a method and key "
        "dimension, or whatever --x says; mean and standard deviation over seeds.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="runs, folders of runs")
    parser.add_argument(
        "--x", default="key_dim",
        help="what varies: a field of score.json or a choice of the sweep (default: key_dim); "
        f"{NO_X}: a row a method and its choices, drawn against parameters",
    )  # fmt: skip
    parser.add_argument(
        "--columns", type=lambda text: tuple(text.split(",")), default=(), metavar="A,B,...",
        help="fields of score.json, such as bleu,perplexity.test,valid_loss,parameters, "
        "or choices of the sweep (default: scores and costs of the task)",
    )  # fmt: skip
    parser.add_argument(
        "--against", metavar="ROW",
        help="the baseline of the tests: a method, or a row by its name in the table, such as "
        "'concatenated, layers=2' (default: concatenated heads, if there); "
        f"{against.NO_TEST}: no tests",
    )  # fmt: skip
    parser.add_argument(
        "--figure", metavar="FIELD",
        help="what the figure shows: a number of score.json, such as valid_loss (default: what the "
        "task is measured by, such as bleu)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, help="write table.md, table.csv, figure.png and figure.svg here"
    )
    args = parser.parse_args(argv)
    if args.figure and not args.out:
        parser.error("argument --figure: goes with --out")
    chosen = (args.columns, args.figure)
    table = read_table(args.runs, args.x, args.against, *chosen)
    text = markdown(table)
    if args.out:
        write(table, text, args.out)
    print(text, end="")
    return 0


def write(table: Table, text: str, out: Path) -> None:
    """Write the table and the figure, each file whole or not at all."""
    files: dict[str, bytes | str] = {"table.md": text, "table.csv": as_csv(table)}
    score = table.drawn or table.score
    if table.drawn and not all(figure.numbers(row, score) for row in table.rows if row.runs):
        todo = "give a number of score.json, such as valid_loss"
        raise UserError(f"not every run has a number {score!r}", where="--figure", todo=todo)
    name = heading(table, score)
    title = table.subject if table.drawn else table.title  # the axis has the name
    write_contents(out, files | figure.draw(table.rows, table.noun, title, score, name))
