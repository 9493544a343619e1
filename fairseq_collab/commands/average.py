"""``fairseq-collab average``: one checkpoint with the mean of the weights of several."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fairseq_collab.commands import options
from fairseq_collab.trained.average import average_checkpoints, last_checkpoints


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "average",
        "Averages the weights of several checkpoints of one training. The result translates like "
        "any checkpoint; to train on from it, use --finetune-from-model.",
        "example: fairseq-collab average --last 5 checkpoints --output average.pt",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--inputs", nargs="+", metavar="FILE", help="the checkpoints to average")
    source.add_argument(
        "--last", nargs=2, metavar=("N", "DIR"),
        help="the last N checkpoints of the folder DIR: those of epochs (checkpoint3.pt) or, "
        "where there are none, those of updates (checkpoint_3_1000.pt)",
    )  # fmt: skip
    parser.add_argument(
        "--upper-bound", type=int, metavar="NUMBER",
        help="with --last: leave out what comes after this epoch (or this update, where the "
        "checkpoints are those of updates)",
    )  # fmt: skip
    options.add_output(parser, "--output", "FILE", "the checkpoint to write")
    return parser


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    paths = arguments.inputs
    if paths is None:
        count, folder = arguments.last
        if not count.isdecimal() or int(count) == 0:
            parser.error(f"argument --last: N must be a whole number above 0, not {count!r}")
        paths = last_checkpoints(int(count), folder, arguments.upper_bound)
    elif arguments.upper_bound is not None:
        parser.error("argument --upper-bound: goes with --last only")
    average_checkpoints(paths, arguments.output)
    print(f"{arguments.output}: the mean of {', '.join(paths)}")
    return 0
