"""``fairseq-collab report``: finished runs as one self-contained page, ``OUT.html``."""

from __future__ import annotations

import argparse
from pathlib import Path

from collab_common.files import write_contents
from collab_lab.cli import options


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "report",
        "Write a page about finished runs, with the best model, the cheapest without a "
        "significant loss, and quality and cost as a figure and a table.",
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUNS", help="run folders, or their parents"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.html", help="page to write"
    )
    options.add_force(parser)
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    options.check_new(args, args.out)
    from collab_lab.results import report

    text, answer = report.page(args.runs)
    write_contents(args.out.absolute().parent, {args.out.name: text})
    print(answer)
    return 0
