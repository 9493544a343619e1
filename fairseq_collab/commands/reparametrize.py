"""``fairseq-collab reparametrize``: narrower or shared keys, values or latents for a trained model.

Every attention's maps are approximated in closed form (:mod:`fairseq_collab.convert.low_rank`),
weighted by its inputs on calibration sentences; all other weights are copied.
"""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from collab_common import ATTENTION_TYPES
from collab_common.command import not_negative
from fairseq_collab.commands import options

#: The size that each kind of heads has: ``size`` of :data:`.convert.kinds.TARGETS`.
SIZES = {
    "collab": "key_dim",
    "headsize": "key_dim",
    "grouped-query": "key_value_heads",
    "latent": "latent_dim",
}
QUERY_MIXINGS = ("diagonal", "full", "own")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "reparametrize",
        "Convert a trained transformer (translation or language model; fairseq's own or "
        "transformer_headsize_n) in closed form: to shared keys, narrower separate keys, "
        "grouped-query or latent heads. The result translates and trains on like any checkpoint.",
        "example: fairseq-collab reparametrize average.pt --key-dim 128 --out collab.pt",
    )
    options.add_checkpoint(parser, options.TRANSFORMER)
    options.add_data(parser, "that of the training")
    options.add_out(parser, "FILE", "checkpoint to write")
    options.add_force(parser)
    parser.add_argument(
        "--to", choices=SIZES, default="collab",
        help="heads of the result: shared keys (collab, the default), narrower separate keys "
        "(headsize), grouped-query, or latent",
    )  # fmt: skip
    parser.add_argument(
        "--query-mixing", choices=QUERY_MIXINGS, default="own",
        help="with --to collab: queries of each head of its own (default: least error), one shared "
        "query mixed by a full matrix per head, or a diagonal",
    )  # fmt: skip
    _add_sizes(parser)
    _add_calibration(parser)
    options.add_cpu(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_user_dir(parser)
    return parser


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    sizes = parser.add_argument_group("sizes (some of one kind are needed)")
    _add_size(
        sizes, "--key-dim", "K",
        "key width of all attentions; heads times head size is exact",
        "0 leaves a layer's heads as they are",
    )  # fmt: skip
    _add_size(
        sizes, "--key-value-heads", "G",
        "with --to grouped-query: heads of keys and values; divides the heads",
        "0 leaves a layer's heads as they are",
    )  # fmt: skip
    _add_size(
        sizes, "--latent-dim", "R",
        "with --to latent: width of the vector per token from which an attention makes its keys "
        "and values; the width of the input is exact",
        "0 leaves a layer as it is, with its input for a latent",
    )  # fmt: skip
    sizes.add_argument(
        "--value-heads", type=int, metavar="G",
        help="with --to collab: heads of values; divides the heads (default: unchanged)",
    )  # fmt: skip


def _add_size(group: Any, option: str, metavar: str, whole: str, none: str) -> None:
    """The option of a size, and those of the attention types."""
    group.add_argument(option, type=int, metavar=metavar, help=whole)
    for type_ in ATTENTION_TYPES:
        group.add_argument(
            f"{option}-in-{type_}", metavar=f"{metavar},...",
            help=f"a number, or one per layer; {none}",
        )  # fmt: skip


def _add_calibration(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("calibration sentences, whose inputs weigh the errors")
    group.add_argument("--subset", default="train", help="set to take them from (default: train)")
    group.add_argument(
        "--calibration", type=not_negative, default=1000, metavar="N",
        help="number of sentences, evenly spread (default: 1000); 0 approximates weights",
    )  # fmt: skip


def check(parser: argparse.ArgumentParser, args: Namespace) -> None:
    """End with status 2 where options contradict each other."""
    wanted = SIZES[args.to]
    for name, size in SIZES.items():
        if size != wanted:
            options.reject(parser, args, _sizes(size), f"needs --to {name}")
    if args.to != "collab":
        options.reject(parser, args, ("value_heads", "query_mixing"), "needs --to collab")
    if not args.calibration:
        options.reject(parser, args, ("subset",), "needs --calibration above 0")
    if all(getattr(args, name) is None for name in _sizes(wanted)):
        option = f"--{wanted.replace('_', '-')}"
        parser.error(f"give sizes: {option} or {option}-in-TYPE")


def _sizes(size: str) -> tuple[str, ...]:
    """The options of a size, for all attentions and by attention type."""
    return (size, *(f"{size}_in_{type_}" for type_ in ATTENTION_TYPES))


def reparametrize(args: Namespace) -> dict[str, Any]:
    """Convert ``args.checkpoint`` into ``args.out``; the settings and the errors."""
    from fairseq_collab.convert import conversion
    from fairseq_collab.convert.conversion import Reparametrizer, chosen_sizes
    from fairseq_collab.convert.kinds import TARGETS
    from fairseq_collab.trained import opener

    target = TARGETS[args.to](args)
    trained = conversion.load(args.checkpoint, target, args.data)
    trained.model.to(options.device(args))
    sizes = chosen_sizes(args, trained, target)
    result, fits = Reparametrizer(trained, args, list(sizes)).model(sizes)
    result.model.cpu()
    opener.save(result, args.out)
    return {
        "checkpoint": str(args.checkpoint),
        "out": str(args.out),
        "arch": result.arch,
        "query_mixing": args.query_mixing if args.to == "collab" else None,
        "calibration_sentences": args.calibration,
        "attentions": fits,
    }


#: Columns of the report, by the names of a fit.
_COLUMNS = {
    "key_dim": "K",
    "key_value_heads": "G",
    "latent_dim": "r",
    "error": "error of the scores",
    "value_error": "of the values",
}


def report(result: dict[str, Any]) -> str:
    """One line per attention, and one for the model."""
    fits = result["attentions"]
    rows = [
        (f"{fit['type']} {fit['layer']}", *(fit[name] for name in _COLUMNS if name in fit))
        for fit in fits
    ]
    titles = ["attention", *(title for name, title in _COLUMNS.items() if name in fits[0])]
    table = tabulate(rows, titles, "plain", floatfmt=".4f")
    return f"{table}\n{result['out']}: a {result['arch']}, from {result['checkpoint']}"


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_intermixed_args(argv)
    check(parser, args)
    options.check_out(args)
    options.import_models(args)
    result = reparametrize(args)
    print(json.dumps(result) if args.json else report(result))
    return 0
