"""``fairseq-collab reparametrize``: narrower or shared keys, values or latents for a trained model.

The maps of every attention are approximated with the least predicted loss in bits
(:mod:`collab_lab.pricing`); all other weights are copied.
"""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from collab_common import ATTENTION_TYPES
from collab_common.command import share
from collab_lab.cli import options

#: The size that each kind of heads has: ``size`` of :data:`.conversion.kinds.TARGETS`.
SIZES = {
    "collab": "key_dim",
    "headsize": "key_dim",
    "grouped-query": "key_value_heads",
    "latent": "latent_dim",
}
QUERY_MIXINGS = ("diagonal", "full", "own")
#: Columns of the report, by the size.
LETTERS = {"key_dim": "K", "key_value_heads": "G", "latent_dim": "r"}


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "reparametrize",
        "Convert a trained transformer (translation or language model; fairseq's own or "
        "transformer_headsize_n) to shared keys, narrower separate keys, grouped-query or latent "
        "heads with the least predicted loss. The result translates and trains on like any "
        "checkpoint.",
        "example: fairseq-collab reparametrize average.pt --to latent --cache 0.25 --out latent.pt",
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
        help="with --to collab: queries of each head of its own (default: least loss), one shared "
        "query mixed by a full matrix per head, or a diagonal",
    )  # fmt: skip
    _add_sizes(parser)
    options.add_pass(parser)
    options.add_check(parser)
    options.add_cpu(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_user_dir(parser)
    return parser


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    sizes = parser.add_argument_group("sizes: a share to spread, or sizes of one kind")
    sizes.add_argument(
        "--cache", type=share, metavar="SHARE", help="spread widths over decoder self-attention "
        "and cross-attention so that this share of the KV cache is left",
    )  # fmt: skip
    sizes.add_argument(
        "--parameters", type=share, metavar="SHARE",
        help="spread widths over all attentions so that this share of the parameters is left",
    )  # fmt: skip
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


def check(parser: argparse.ArgumentParser, args: Namespace) -> None:
    """End with status 2 where options contradict each other."""
    wanted = SIZES[args.to]
    for name, size in SIZES.items():
        if size != wanted:
            options.reject(parser, args, _sizes(size), f"needs --to {name}")
    if args.to != "collab":
        options.reject(parser, args, ("value_heads", "query_mixing"), "needs --to collab")
    if args.to == "headsize":  # whose heads have one size in all layers
        rest = ("cache", "parameters", *_sizes(wanted)[1:])
        options.reject(parser, args, rest, "does not go with --to headsize: give --key-dim")
    named = any(getattr(args, name) is not None for name in _sizes(wanted))
    if named + (args.cache is not None) + (args.parameters is not None) != 1:
        option = f"--{wanted.replace('_', '-')}"
        parser.error(f"give one of --cache, --parameters, and sizes ({option} or {option}-in-TYPE)")


def _sizes(size: str) -> tuple[str, ...]:
    """The options of a size, for all attentions and by attention type."""
    return (size, *(f"{size}_in_{type_}" for type_ in ATTENTION_TYPES))


def reparametrize(args: Namespace) -> dict[str, Any]:
    """Convert ``args.checkpoint`` into ``args.out``; the settings and the prices."""
    from collab_lab.conversion.base import Conversion
    from collab_lab.conversion.converter import Converter, chosen_sizes, load
    from collab_lab.pricing.statistics import collect, samples
    from collab_lab.trained import opener

    what = Conversion(args.to, args.query_mixing, args.value_heads)
    trained, target = load(args.checkpoint, what, args.data)
    trained.model.to(options.device(args))
    by_type = {type_: getattr(args, f"{target.size}_in_{type_}") for type_ in ATTENTION_TYPES}
    shares = {of: getattr(args, of) for of in ("cache", "parameters") if getattr(args, of)}
    sizes = {}
    if not shares:
        whole = getattr(args, target.size)
        sizes = chosen_sizes(whole, by_type, trained, target)
    statistics = collect(trained, samples(trained, args.subset, args.sentences))
    converter = Converter(trained, what, statistics)
    if shares:
        sizes = converter.spread(shares)
    result, prices = converter.model(sizes)
    checked = options.checked(args, trained, result)
    result.model.cpu()
    opener.save(result, args.out)
    attentions = [
        {"type": one.type, "layer": one.layer, target.size: sizes[one], "price": price}
        for one, price in prices.items()
    ]
    return {
        "checkpoint": str(args.checkpoint),
        "out": str(args.out),
        "arch": result.arch,
        "query_mixing": args.query_mixing if args.to == "collab" else None,
        "sentences": args.sentences,
        "price": sum(prices.values()),
        **checked,
        "attentions": attentions,
    }


def report(result: dict[str, Any]) -> str:
    """One line per attention, and one for the model."""
    found, (size,) = result["attentions"], {*SIZES.values()} & {*result["attentions"][0]}
    rows = [(f"{one['type']} {one['layer']}", one[size], one["price"]) for one in found]
    rows.append(("sum", None, result["price"]))
    table = tabulate(rows, ["attention", LETTERS[size], "price (bits)"], "plain", floatfmt=".4f")
    made = f"{result['out']}: a {result['arch']}, from {result['checkpoint']}"
    return "\n".join([table, *options.check_lines(result), made])


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_intermixed_args(argv)
    check(parser, args)
    options.check_out(args)
    options.import_models(args)
    result = reparametrize(args)
    print(json.dumps(result) if args.json else report(result))
    return 0
