"""``fairseq-collab reparametrize``: convert a trained model to shared or narrower keys, or latents.

The maps of every attention are approximated at the least predicted loss in bits
(:mod:`collab_lab.shrinking`), and the output projections of all blocks are refitted.  All other
weights are copied.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from collab_common import ATTENTION_TYPES
from collab_lab.cli import options
from collab_lab.shrinking import SIZE_OPTIONS

#: Columns of the report, by the size.
LETTERS = {"key_dim": "K", "key_value_heads": "G", "latent_dim": "r"}


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "reparametrize",
        "Convert a trained transformer with standard or separate heads to shared keys, narrower "
        "separate keys, grouped-query or latent heads, at the lowest predicted loss. Then refit "
        "the outputs of all blocks, unless that raises the loss. The result translates, and can be "
        "trained, like any checkpoint.",
        "example: fairseq-collab reparametrize average.pt --to latent --latent-dim 64 --out out.pt",
    )
    options.add_model(parser)
    options.add_out(parser, "FILE", "checkpoint to write")
    parser.add_argument(
        "--to", choices=SIZE_OPTIONS, default="collab",
        help="heads of the result: shared keys (collab, default), narrower separate keys "
        "(separate), grouped-query or latent",
    )  # fmt: skip
    parser.add_argument(
        "--query-mixing", metavar="{own,full,diagonal}",
        help="with --to collab: one query projection per head (own, default, lowest loss), or one "
        "shared query with a full matrix or a diagonal per head",
    )  # fmt: skip
    _add_sizes(parser)
    options.add_no_refit(parser)
    options.add_pass(parser, check="measure the validation loss before and after")
    options.add_prices(parser)
    return parser


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    sizes = parser.add_argument_group("sizes (shrink chooses them for a share of the KV cache)")
    sizes.add_argument(
        "--cache-bits", default="auto", metavar="{auto,none,8,4}",
        help="bits per number in the KV cache: 8, 4, none (no rounding), or a list with one entry "
        "for each cache (4,8,0: decoder layers, then cross-attentions); auto (default): keep the "
        "model's",
    )  # fmt: skip
    _add_size(
        sizes, "--key-dim", "K",
        "key width of all attentions; the conversion is exact at heads times head size",
    )  # fmt: skip
    _add_size(
        sizes, "--key-value-heads", "G",
        "with --to grouped-query: number of key/value heads, a divisor of the heads",
    )  # fmt: skip
    _add_size(
        sizes, "--latent-dim", "R",
        "with --to latent: width of the vector per token from which an attention makes keys and "
        "values; the conversion is exact at the width of the input",
    )  # fmt: skip


def _add_size(group: Any, option: str, metavar: str, whole: str) -> None:
    """The option of a size, and those of the attention types."""
    group.add_argument(option, type=int, metavar=metavar, help=whole)
    for type_ in ATTENTION_TYPES:
        group.add_argument(
            f"{option}-in-{type_}", metavar=f"{metavar},...",
            help="one number, or one per layer; 0 leaves a layer's heads as they are",
        )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_intermixed_args(argv)
    of_kind = SIZE_OPTIONS[args.to]
    for name, size in SIZE_OPTIONS.items():
        if size != of_kind:
            of_size = (size, *(f"{size}_in_{type_}" for type_ in ATTENTION_TYPES))
            options.reject(parser, args, of_size, f"needs --to {name}")
    options.check_model_out(args)
    model = options.model(args)
    from tabulate import tabulate

    from collab_lab import convert
    from collab_lab.metrics.cost import totals
    from collab_lab.trained.fine_tuning import fine_tuning_lines, write_configuration

    validation = options.validation(args, model)
    with options.spelled(size=of_kind, by_type=f"{of_kind}_in"):
        smaller = convert(
            model,
            args.to,
            getattr(args, of_kind),
            by_type={type_: getattr(args, f"{of_kind}_in_{type_}") for type_ in ATTENTION_TYPES},
            query_mixing=args.query_mixing,
            cache_bits=args.cache_bits,
            refit=not args.no_refit,
            statistics=options.statistics(args, model),
            subset=args.subset,
            sentences=args.sentences,
        )
    result, plan = smaller.model, smaller.plan
    checked = validation(result, plan.price)
    result.model.cpu()
    result.save(args.out)
    write_configuration(result, args.out)
    rows: list[Any] = [
        (str(a), plan.sizes.get(a, 0), plan.bits.get(a), price)
        for a, price in plan.of_sites.items()
        if a in plan.sizes or a in plan.bits
    ]
    before, after = (totals(one.model)["parameters"] for one in (model, result))
    if after > before:  # a wide latent, whose numbers are rounded
        checked = [*checked, f"the layers have {after / before:.1%} of the source's parameters"]
    titles = ["attention", LETTERS[of_kind], "cache bits", "price (bits)"]
    table = tabulate([*rows, ("sum", None, None, plan.price)], titles, "plain", floatfmt=".4f")
    tuning = fine_tuning_lines(model, result, args.out)
    print(table, options.rise_line(smaller.rise), *checked, *tuning, sep="\n")
    return 0
