"""``fairseq-collab average``: average the weights of several checkpoints."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from collab_common.command import positive
from collab_lab.cli import options


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "average",
        "Average the weights of several checkpoints of one training. The result translates like "
        "any checkpoint; to continue training from it, use --finetune-from-model.",
        "example: fairseq-collab average checkpoints --last 5 --out average.pt",
    )
    parser.add_argument(
        "checkpoints", nargs="+", type=Path,
        help="checkpoints to average; with --last, the folder that contains them",
    )  # fmt: skip
    parser.add_argument(
        "--last", type=positive, metavar="N",
        help="average the last N checkpoints in the folder: those of epochs (checkpoint3.pt) or, "
        "if there are none, those of updates (checkpoint_3_1000.pt); newer weights of an "
        "unfinished epoch also count",
    )  # fmt: skip
    parser.add_argument(
        "--ema", action="store_true",
        help="use the moving averages of the weights, which a training with --store-ema saves, "
        "instead of the weights; this also works with a single checkpoint",
    )  # fmt: skip
    options.add_out(parser, "FILE", "checkpoint to write")
    return parser


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    options.check_out(args)
    options.import_models(args)
    from collab_lab.trained.average import average_checkpoints, last_checkpoints

    paths = args.checkpoints
    if args.last is not None:
        if len(paths) != 1:
            parser.error("argument --last: needs one folder")
        paths = last_checkpoints(args.last, paths[0])
    average_checkpoints(paths, args.out, ema=args.ema)
    what = "the moving averages of" if args.ema else "the mean of"
    print(f"{args.out}: {what} {', '.join(map(str, paths))}, in single precision")
    if args.ema:  # fairseq's script copies all but the weights from its first file
        print(
            "if another program averaged such a file, its moving averages are those of one of the "
            "checkpoints, not of their mean: then give the checkpoints themselves"
        )
    return 0
