"""The options of ``fairseq-collab reparametrize``."""

from __future__ import annotations

import argparse
from argparse import Namespace
from pathlib import Path

import torch

from fairseq_collab.checkpoints.reparametrize.calibrate import WEIGHTINGS
from fairseq_collab.checkpoints.reparametrize.factorise import MAX_STEPS
from fairseq_collab.models.layers import SITES

#: Our own factors, their start as it is, or TensorLy's for comparison.
METHODS = ("shared", "block", "tensorly")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = argparse.ArgumentParser(
        prog="fairseq-collab reparametrize",
        description="Turns a trained transformer (encoder-decoder, language model, or RoBERTa; "
        "fairseq's own or with --arch transformer_headsize_n) into one with collaborative heads. "
        "The result translates and trains on like any checkpoint.",
        epilog="example: fairseq-collab reparametrize average.pt --key-dim 128 --out collab.pt",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="what to write")
    _add_sizes(parser)
    _add_calibration(parser)
    _add_search(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--user-dir", metavar="DIR", help="a further plug-in, if the model is its")
    return parser


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    sizes = parser.add_argument_group("key dimensions (one of these is needed)")
    sizes.add_argument(
        "--key-dim", type=int, metavar="K",
        help="shared key dimension of all attentions; heads times head size is exact",
    )  # fmt: skip
    for site in SITES:
        sizes.add_argument(
            f"--key-dim-in-{site}", metavar="K,...",
            help="a number, or one a layer; 0 leaves a layer's heads as they are",
        )  # fmt: skip
    sizes.add_argument(
        "--max-logit-error", type=share, metavar="E",
        help="the smallest key dimension of each attention whose logits, less each row's mean, "
        "are off by at most this share (root mean square)",
    )  # fmt: skip
    sizes.add_argument(
        "--max-bleu-drop", type=amount, metavar="B",
        help="the smallest common key dimension that loses at most so many BLEU points",
    )  # fmt: skip
    sizes.add_argument(
        "--exportable", action="store_true",
        help="approximate the heads' biases, too, so that a key dimension of d/H can become a "
        "model of fairseq's own again (fairseq-collab export); below d/H it always can",
    )  # fmt: skip
    sizes.add_argument(
        "--sites", default=",".join(SITES),
        help="which attentions: some of encoder, decoder, cross (default: all)",
    )  # fmt: skip


def _add_calibration(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sentences")
    group.add_argument(
        "--data", type=Path, metavar="DIR",
        help="binarised folder (default: that of the training)",
    )  # fmt: skip
    group.add_argument("--subset", default="train", help="for calibration (default: train)")
    group.add_argument(
        "--calibration", type=count, default=1000, metavar="N",
        help="how many sentences, evenly spread (default: 1000); 0 approximates weights",
    )  # fmt: skip
    group.add_argument(
        "--weighting", choices=WEIGHTINGS, default=WEIGHTINGS[0],
        help="what to approximate on them: scores, weights, or halfway (default: root)",
    )  # fmt: skip
    group.add_argument(
        "--bleu-subset", default="valid", help="for --max-bleu-drop (default: valid)"
    )
    group.add_argument(
        "--distil", type=count, default=0, metavar="N",
        help="then train what scores for so many updates on what the given model predicts for "
        "the calibration sentences (default: 0)",
    )  # fmt: skip


def _add_search(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("factorisation")
    group.add_argument(
        "--method", choices=METHODS, default=METHODS[0],
        help="shared (default); block: its start, where no two heads share a dimension; tensorly: "
        "alternating least squares of that library, for comparison",
    )  # fmt: skip
    group.add_argument(
        "--steps", type=count, default=MAX_STEPS, metavar="N",
        help=f"of the optimiser, at most (default: {MAX_STEPS})",
    )  # fmt: skip
    group.add_argument(
        "--restarts", type=count, default=0, metavar="N",
        help="further searches from disturbed starts; the best is kept (default: 0)",
    )  # fmt: skip
    group.add_argument("--seed", type=count, default=1, help="of restarts (default: 1)")
    group.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu or cuda (default: cuda where there is one)",
    )  # fmt: skip


def check(parser: argparse.ArgumentParser, args: Namespace) -> None:
    """End with status 2 where options contradict each other."""
    sizes = [args.key_dim, *(getattr(args, f"key_dim_in_{site}") for site in SITES)]
    ways = [any(size is not None for size in sizes)]
    ways += [args.max_logit_error is not None, args.max_bleu_drop is not None]
    if sum(ways) != 1:
        parser.error(
            "give key dimensions (--key-dim, --key-dim-in-SITE), or --max-logit-error, or "
            "--max-bleu-drop"
        )
    if not args.calibration and (args.max_logit_error is not None or args.distil):
        parser.error("--max-logit-error and --distil need sentences: --calibration above 0")


def count(text: str) -> int:
    """A whole number from 0 up."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 up, not {text!r}")
    return int(text)


def share(text: str) -> float:
    """A number above 0 and below 1."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, not {text!r}")
    return value


def amount(text: str) -> float:
    """A number from 0 up."""
    value = _number(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number from 0 up, not {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0
