"""``fairseq-collab table``: many runs in one table and one figure, made from run folders only.

One row a method and key dimension, or whatever ``--x`` names; with ``--x none``, a row a method and
its choices.  Mean and standard deviation over seeds, costs, and the paper's score beside ours.
Runs that are not finished are listed, never averaged in.  The same runs give the same bytes, in
whatever order they are given.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from collab_common.files import make_folder, write_content
from fairseq_collab.results import against, figure, published
from fairseq_collab.results.rows import NO_X, Row, distinct, warnings
from fairseq_collab.results.table_content import (
    Table,
    as_csv,
    deviation,
    has_paper,
    mean,
    paper_bleu,
    read_table,
)

NOTHING = "-"


def columns(table: Table) -> list[tuple[str, Callable[[Row], str]]]:
    """Heading and content of every column of the Markdown table."""
    length = table.facts["multiply_adds_length"]
    found: list[tuple[str, Callable[[Row], str]]] = [
        ("method", lambda row: row.label),
        *([(table.noun, lambda row: str(row.x))] if table.noun else []),
        ("seeds", lambda row: str(len(row.runs))),
        ("BLEU", lambda row: spread(row.values("bleu")) if row.runs else table.empty),
        ("chrF", lambda row: spread(row.values("chrf"))),
        (
            "tokenised compound-split BLEU (not comparable with BLEU)",
            lambda row: spread(row.values("compound_split_bleu")),
        ),
        ("parameters", lambda row: whole(row.fact("parameters"))),
        (
            "key-cache bytes a target token (all decoder layers)",
            lambda row: whole(row.fact("key_bytes_per_target_token")),
        ),
        (
            f"multiply-adds ({length} source, {length} target tokens)",
            lambda row: whole(row.fact("multiply_adds")),
        ),
        ("training tokens/s", lambda row: whole(mean(row.values("train_tokens_per_second")))),
    ]
    if has_paper(table):
        found.append((published.COLUMN, lambda row: decimals(paper_bleu(table, row))))
    return found


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation; for one seed its value alone."""
    text = decimals(mean(values))
    sd = deviation(values)
    return text if sd is None else f"{text} ± {sd:.2f}"


def decimals(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def markdown(table: Table) -> str:
    """The whole of ``table.md``."""
    notes = [
        "BLEU, chrF: sacreBLEU on detokenised, cased text; ±: standard deviation over seeds "
        "(n - 1). Multiply-adds: one full forward pass of a sentence pair. Caches: single "
        "precision, one target token of one sentence.",
    ]
    lines = [f"# {table.title}", "", *main_table(table), "", *notes, ""]
    lines += _section("Warnings", warnings(table.finished))
    lines += _section("Not in the table", left_out(table))
    if table.baseline:
        lines += against.markdown(table.differences, table.baseline, table.noun)
    lines += ["## Runs", "", *run_table(table), ""]
    lines += _section("Sources", sources(table))
    return "\n".join(lines).rstrip("\n") + "\n"


def main_table(table: Table) -> list[str]:
    """One line a row."""
    shown = columns(table)
    lines = [[heading for heading, _ in shown], ["---", *["---:"] * (len(shown) - 1)]]
    lines += [[content(row) for _, content in shown] for row in table.rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def run_table(table: Table) -> list[str]:
    """One line a run."""
    x = [table.noun] if table.noun else []
    numbers = [*x, "seed", "BLEU", "valid. loss", "updates", "epochs"]
    lines = [["run", "method", *numbers, "date", "commit"]]
    lines += [["---", "---", *["---:"] * len(numbers), "---", "---"]]
    for row in table.rows:
        for run in row.runs:
            facts = run.facts
            lines.append(
                [
                    *(run.name, row.label, *([str(row.x)] if x else []), str(facts["seed"])),
                    *(decimals(facts["bleu"]), f"{facts['valid_loss']:.3f}"),
                    *(whole(facts["train_updates"]), str(facts["epochs"])),
                    *(str(facts["date"]), str(facts.get("trained_at_commit") or facts["commit"])),
                ]
            )
    return [f"| {' | '.join(line)} |" for line in lines]


def left_out(table: Table) -> list[str]:
    """Runs that are not finished, and runs without ``x``, by name."""
    return [*table.unfinished, *(f"{run.name}: has no {table.x}" for run in table.without_x)]


def sources(table: Table) -> list[str]:
    """Where every number comes from."""
    facts = table.facts
    compound = facts["compound_split_signature"]
    found = [
        f"command: `{table.command}`, from the runs' "
        + ", ".join(f"`{name}`" for name in table.score_files),
        f"BLEU: `{facts['bleu_signature']}`",
        f"chrF: `{facts['chrf_signature']}`",
        *([f"tokenised compound-split BLEU: `{compound}`"] if compound else []),
        f"data: {facts['data']}, SHA-256 {facts['data_sha256']}",
    ]
    for name, value in (
        ("translated with", _decoding),
        ("versions", lambda facts: ", ".join(f"{k} {v}" for k, v in facts["versions"].items())),
        ("hardware", lambda facts: facts["hardware"]),
    ):
        found.append(f"{name}: {'; '.join(distinct(table.finished, value))}")
    return found + ([f"paper: {published.SOURCE}"] if has_paper(table) else [])


def _decoding(facts: dict[str, Any]) -> str:
    averaged = len(facts["averaged"])
    return f"beam {facts['beam']}, lenpen {facts['lenpen']}, {averaged} checkpoints averaged"


def _section(title: str, items: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {item}" for item in items), ""] if items else []


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab table",
        description="A table (and, with --out, a figure) of runs: one row a method and key "
        "dimension, or whatever --x says; mean and standard deviation over seeds.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="runs, folders of runs")
    parser.add_argument(
        "--x",
        default="key_dim",
        help="what varies: a field of score.json or a choice of the sweep (default: key_dim); "
        f"{NO_X}: a row a method and its choices, and BLEU against parameters in the figure",
    )
    parser.add_argument(
        "--against",
        metavar="ROW",
        help="the baseline of the tests: a method, or a row by its name in the table, such as "
        "'concatenated, layers=2' (default: concatenated heads, if there); "
        f"{against.NO_TEST}: no tests",
    )
    parser.add_argument(
        "--gen-subset",
        metavar="SUBSET",
        help="the scores on this test set, made by fairseq-collab score --gen-subset (default: on "
        "each run's own, dataset.gen_subset)",
    )
    parser.add_argument(
        "--out", type=Path, help="write table.md, table.csv, figure.png and figure.svg here"
    )
    args = parser.parse_args(argv)
    table = read_table(args.runs, args.x, args.against, args.gen_subset)
    text = markdown(table)
    if args.out:
        write(table, text, args.out)
    print(text, end="")
    return 0


def write(table: Table, text: str, out: Path) -> None:
    """Write the table and the figure, each file whole or not at all.

    Raises:
        UserError: the folder cannot be made or written to, or matplotlib is missing.
    """
    files = {"table.md": text.encode(), "table.csv": as_csv(table).encode()}
    files |= figure.draw(table.rows, table.noun, table.title)
    make_folder(out)
    for name, content in files.items():
        write_content(out / name, content)
