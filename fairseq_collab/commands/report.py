"""``fairseq-collab report``: finished runs as one page, and every number of it as JSON.

OUT.html    the answer, tables, papers, learning curves, commands; opens without a network
OUT.json    what it shows, see :mod:`fairseq_collab.results.report.content`

The same runs give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from collab_common.files import write_contents
from fairseq_collab.results.report import page
from fairseq_collab.results.report.content import Content, collect

ENDING = ".html"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab report",
        description="One self-contained page of finished runs: which model is best, which is "
        "cheaper and what that costs; then all scores with intervals and tests, papers beside "
        "ours, commands. Its numbers go into a JSON file beside it.",
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUNS", help="folders with runs at any depth"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.html", help="FILE.json goes beside it"
    )
    args = parser.parse_args(argv)
    if args.out.suffix != ENDING:
        parser.error(f"argument --out: give a name that ends in {ENDING}")
    content = collect(args.runs, args.out.name)
    write(content, args.out)
    print(page.summary(content, args.out))
    return 0


def write(content: Content, out: Path) -> None:
    """Write the JSON file and the page, each whole or not at all."""
    numbers = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    written = {out.with_suffix(".json").name: numbers, out.name: page.report(content)}
    write_contents(out.absolute().parent, written)
