"""``fairseq-collab reparametrize``: a trained model becomes one whose heads share.

Every attention's keys, or keys and values, are approximated (:mod:`.factorise`, :mod:`.low_rank`),
with the inputs that it has on calibration sentences (:mod:`.calibrate`); everything else is copied
(:mod:`.convert`).
"""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from collab_common.command import check_folder_of, not_negative
from fairseq_collab.commands import options
from fairseq_collab.convert import source
from fairseq_collab.convert.calibrate import WEIGHTINGS
from fairseq_collab.convert.distil import distil
from fairseq_collab.convert.factorise import MAX_STEPS
from fairseq_collab.convert.grouped import POOLINGS
from fairseq_collab.convert.target import Target
from fairseq_collab.convert.work import (
    TARGETS,
    Reparametrizer,
    chosen_places,
    chosen_sizes,
)
from fairseq_collab.metrics.translate import check_translation
from fairseq_collab.models.layers import SITES
from fairseq_collab.trained import opener

#: Our own factors, their start as it is, or TensorLy's for comparison.
METHODS = ("shared", "block", "tensorly")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "reparametrize",
        "Turns a trained transformer (encoder-decoder, language model, or RoBERTa; fairseq's own "
        "or with --arch transformer_headsize_n) into one whose heads share: keys (collaborative "
        "heads), or keys and values. The result translates and trains on like any checkpoint.",
        "example: fairseq-collab reparametrize average.pt --key-dim 128 --out collab.pt",
    )
    options.add_checkpoint(parser, None)
    options.add_output(parser, "--out", "FILE", "what to write")
    _add_sizes(parser)
    _add_calibration(parser)
    _add_search(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_user_dir(parser)
    return parser


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", choices=[*TARGETS], default="collab",
        help="what heads become: collaborative (default), grouped-query, or latent",
    )  # fmt: skip
    sizes = parser.add_argument_group("sizes (some of one kind are needed)")
    _add_size(
        sizes, "--key-dim", "K",
        "shared key dimension of all attentions; heads times head size is exact",
        "0 leaves a layer's heads as they are",
    )  # fmt: skip
    _add_size(
        sizes, "--key-value-heads", "G",
        "with --to grouped-query: heads of keys and values of all attentions; one divides the "
        "heads, and as many as heads is exact",
        "0 leaves a layer's as they are",
    )  # fmt: skip
    _add_size(
        sizes, "--latent-dim", "R",
        "with --to latent: numbers of a token from which all keys and values of an attention come; "
        "as many as the input has is exact",
        "0 leaves a layer as it is, with its input for a latent",
    )  # fmt: skip
    sizes.add_argument(
        "--value-heads", type=int, metavar="G",
        help="with --to collab: groups of heads share their values, too, so many in every "
        "attention; one divides the heads (default: values stay as they are)",
    )  # fmt: skip
    sizes.add_argument(
        "--max-logit-error", type=options.proper_share, metavar="E",
        help="the smallest key dimension of each attention whose logits, less each row's mean, "
        "are off by at most this share (root mean square)",
    )  # fmt: skip
    sizes.add_argument(
        "--max-bleu-drop", type=options.amount, metavar="B",
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


def _add_size(group: Any, option: str, metavar: str, whole: str, none: str) -> None:
    """The option of a size, and those of the sites."""
    group.add_argument(option, type=int, metavar=metavar, help=whole)
    for site in SITES:
        group.add_argument(
            f"{option}-in-{site}", metavar=f"{metavar},...",
            help=f"a number, or one a layer; {none}",
        )  # fmt: skip


def _add_calibration(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sentences")
    group.add_argument(
        "--data", type=Path, metavar="DIR",
        help="binarised folder (default: that of the training)",
    )  # fmt: skip
    group.add_argument("--subset", default="train", help="for calibration (default: train)")
    group.add_argument(
        "--calibration", type=not_negative, default=1000, metavar="N",
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
        "--distil", type=not_negative, default=0, metavar="N",
        help="then train what has changed for so many updates on what the given model predicts for "
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
        "--steps", type=not_negative, default=MAX_STEPS, metavar="N",
        help=f"of the optimiser, at most (default: {MAX_STEPS})",
    )  # fmt: skip
    group.add_argument(
        "--restarts", type=not_negative, default=0, metavar="N",
        help="further searches from disturbed starts; the best is kept (default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--pooling", choices=POOLINGS, default=POOLINGS[0],
        help="shared keys and values of a group's heads: their mean (default), those of the first, "
        "fresh ones, or the least-squares fit on the sentences, queries and outputs fitted along",
    )  # fmt: skip
    group.add_argument(
        "--match-heads",
        action="store_true",
        help="put heads into groups that lose little by sharing; otherwise neighbours share",
    )
    group.add_argument("--seed", type=not_negative, default=1, help="of restarts (default: 1)")
    group.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu or cuda (default: cuda where there is one)",
    )  # fmt: skip


def check(parser: argparse.ArgumentParser, args: Namespace) -> None:
    """End with status 2 where options contradict each other."""
    for there, needed, names in _needs(args):
        if not there:
            options.refuse(parser, args, names, f"needs {needed}")
    ways = (_sizes(TARGETS[args.to]), ("max_logit_error",), ("max_bleu_drop",))
    given = [any(getattr(args, name) is not None for name in names) for names in ways]
    if sum(given) != 1:
        option = f"--{TARGETS[args.to].size.replace('_', '-')}"
        budget = ", or --max-logit-error, or --max-bleu-drop" if args.to == "collab" else ""
        kind = "key dimensions" if args.to == "collab" else "sizes"
        parser.error(f"give {kind} ({option}, {option}-in-SITE){budget}")
    if args.match_heads and args.pooling not in ("mean", "fit"):
        parser.error("--match-heads compares what means or fits lose: give --pooling mean or fit")


def _needs(args: Namespace) -> list[tuple[bool, str, tuple[str, ...]]]:
    """Whether what some options need is given, what that is, and which these options are."""
    collab, grouped, seen = args.to == "collab", args.to == "grouped-query", args.calibration > 0
    ours = collab and args.method == "shared"
    of_collab = ("value_heads", "exportable", "method", "max_logit_error", "max_bleu_drop")
    of_sentences = ("subset", "distil", "max_logit_error", "weighting")
    pooled = grouped or args.value_heads is not None
    weighed = not grouped or args.match_heads or args.pooling == "fit"
    return [
        *((args.to == kind, f"--to {kind}", _sizes(target)) for kind, target in TARGETS.items()),
        (collab, "--to collab", of_collab),
        (ours, "--to collab and --method shared", ("steps", "restarts")),
        (grouped, "--to grouped-query", ("match_heads",)),
        (pooled, "--to grouped-query or --value-heads", ("pooling",)),
        (args.max_bleu_drop is not None, "--max-bleu-drop", ("bleu_subset",)),
        (weighed, "--pooling fit or --match-heads", ("weighting",)),
        (seen, "sentences: --calibration above 0", of_sentences),
    ]


def _sizes(target: type[Target]) -> tuple[str, ...]:
    """Options of this target's size, for all attentions and by site."""
    return (target.size, *(f"{target.size}_in_{site}" for site in SITES))


def reparametrize(args: Namespace) -> dict[str, Any]:
    """Convert ``args.checkpoint`` into ``args.out``; what was done, and how well it fits."""
    check_folder_of(args.out, "--out")
    target = TARGETS[args.to](args)
    trained = source.load(args.checkpoint, target, args.data)
    trained.model.to(args.device)
    if args.max_bleu_drop is not None:
        check_translation(trained.task, "--max-bleu-drop", "give --max-logit-error")
    given = chosen_sizes(args, trained, target)
    work = Reparametrizer(trained, args, list(given or chosen_places(args, trained)))
    if args.max_bleu_drop is not None:
        given = work.within_bleu(args.max_bleu_drop)
    elif args.max_logit_error is not None:
        given = work.within_error(args.max_logit_error)
    result, fits = work.model(given)
    losses: list[float] = []
    if args.distil:
        pad = trained.task.source_dictionary.pad()
        result.model.to(args.device)
        losses = distil(trained.model, result.model, work.inputs, pad, args.distil, seed=args.seed)
    result.model.cpu()
    opener.save(result, args.out)
    return {
        "checkpoint": str(args.checkpoint),
        "out": str(args.out),
        "arch": result.arch,
        "method": {"collab": args.method, "grouped-query": args.pooling}.get(args.to),
        "weighting": args.weighting if args.calibration else "weights",
        "calibration_sentences": args.calibration,
        "seed": args.seed,
        "attentions": fits,
        "distillation_loss": [losses[0], losses[-1]] if losses else None,
    }


#: What is shown of a fit, and under which title.
_COLUMNS = {
    "key_dim": "K",
    "key_value_heads": "G",
    "latent_dim": "r",
    "start_error": "start",
    "error": "error",
    "value_error": "values",
    "logit_error": "logits",
    "steps": "steps",
}


def report(result: dict[str, Any]) -> str:
    """A line for each attention, and one for the whole."""
    fits = result["attentions"]
    rows = [
        (f"{fit['site']} {fit['layer']}", *(fit[name] for name in _COLUMNS if name in fit))
        for fit in fits
    ]
    titles = ["attention", *(title for name, title in _COLUMNS.items() if name in fits[0])]
    lines = [tabulate(rows, titles, "plain", floatfmt=".4f")]
    if result["distillation_loss"]:
        first, last = result["distillation_loss"]
        lines.append(f"distillation: KL {first:.4f} at first, {last:.4f} at last (nats a token)")
    lines.append(f"{result['out']}: a {result['arch']}, from {result['checkpoint']}")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check(parser, args)
    options.import_plugin(args)
    torch.manual_seed(args.seed)
    result = reparametrize(args)
    print(json.dumps(result) if args.json else report(result))
    return 0
