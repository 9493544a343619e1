"""``fairseq-collab prune``: remove heads from a trained model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.command import positive
from collab_lab.cli import options

if TYPE_CHECKING:
    from collab_lab.trained.attentions import HeadCounts, Retained
    from collab_lab.trained.checkpoint import Trained


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "prune",
        "Remove heads from a trained transformer with standard or separate heads. By default, "
        "remove the heads with the lowest price, which is the expected increase of the loss in "
        "bits per target token. Then refit the outputs of all blocks, unless that raises the loss. "
        "The result is a transformer_headsize_n or transformer_lm_headsize_n. To fine-tune it, run "
        "the printed command, or give a sweep the Hydra configuration next to the checkpoint (OUT "
        "with .yaml).",
        "example: fairseq-collab prune average.pt data-bin --keep 4 --out pruned.pt",
    )
    options.add_model(parser)
    options.add_out(parser, "FILE", "checkpoint to write")
    choices = parser.add_mutually_exclusive_group(required=True)
    choices.add_argument(
        "--remove",
        type=int,
        metavar="N",
        help="number of heads to remove (for a share of the heads, use fairseq-collab shrink)",
    )
    choices.add_argument(
        "--as-many-as", type=Path, metavar="CHECKPOINT",
        help="keep the same number of heads as this model",
    )  # fmt: skip
    choices.add_argument(
        "--keep", metavar="C", type=positive, help="number of heads to keep in each attention"
    )
    choices.add_argument(
        "--votes", type=Path, metavar="FILE", help="keep the heads that fairseq-collab vote "
        "elected (the file that it wrote)",
    )  # fmt: skip
    choices.add_argument(
        "--gates", action="store_true", help="keep the heads of a transformer_gated_heads whose "
        "gates are open, rounded to 0 or 1; a layer may lose all heads",
    )  # fmt: skip
    parser.add_argument(
        "--same-on-each-side", action="store_true",
        help="keep equally many heads in all attentions of the encoder, and in all of the "
        "decoder, so that the model is also smaller in CTranslate2; removes at least the given "
        "number of heads",
    )  # fmt: skip
    parser.add_argument(
        "--types", nargs="+", choices=ATTENTION_TYPES,
        help="attention types that lose heads (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--random",
        type=int,
        metavar="SEED",
        help="seed; remove random heads instead of those with the lowest price",
    )
    options.add_no_refit(parser)
    options.add_pass(parser, check="measure the validation loss before and after")
    options.add_prices(parser)
    return parser


def choice(args: argparse.Namespace, model: Trained) -> dict[str, Any]:
    """The arguments of :func:`collab_lab.prune` that say which heads to remove, or how many."""
    from collab_lab import open_model
    from collab_lab.heads import votes
    from collab_lab.shrinking.gates import open_heads

    names = ("keep", "types", "random", "same_on_each_side")
    chosen: dict[str, Any] = {name: getattr(args, name) for name in names}
    types, heads = args.types or ATTENTION_TYPES, model.heads
    if args.votes is not None:
        chosen["retained"] = votes.read(args.votes, model)
    elif args.gates:
        chosen["retained"] = open_heads(model)
    elif args.remove is not None:
        chosen["number"] = args.remove
    elif args.as_many_as is not None:
        other_heads = open_model(args.as_many_as, args.data).heads
        chosen["number"] = total(heads, types) - total(other_heads, types)
    return chosen


def total(heads: HeadCounts, types: Sequence[AttentionType]) -> int:
    """The total number of heads of these attention types."""
    return sum(sum(heads[type_]) for type_ in types)


def report(heads: HeadCounts, retained: Retained) -> list[str]:
    """The retained heads, one line per attention type."""
    lines = []
    for type_, counts in heads.items():
        if not counts:  # such as the encoder of a language model
            continue
        listed = [" ".join(map(str, sorted(layer))) or "-" for layer in retained[type_]]
        number = f"{sum(map(len, retained[type_]))} of {sum(counts)} heads stay"
        lines.append(f"{type_}: {number}: {' / '.join(listed)}")
    return lines


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_intermixed_args(argv)
    options.check_model_out(args)
    model = options.model(args)
    from collab_lab import prune
    from collab_lab.shrinking.cut import reject
    from collab_lab.shrinking.cuts.heads import Heads
    from collab_lab.trained.fine_tuning import fine_tuning_lines, write_configuration

    reject(model, [Heads()], "its heads cannot be removed")
    chosen, validation = choice(args, model), options.validation(args, model)
    chosen["statistics"] = options.statistics(args, model)
    read = {"subset": args.subset, "sentences": args.sentences, "refit": not args.no_refit}
    smaller = prune(model, **chosen, **read)
    result, price = smaller.model, smaller.price
    checked = validation(result, price)
    result.model.cpu()
    result.save(args.out)
    write_configuration(result, args.out)
    prices = [] if price is None else [f"price: {price:.4f} bits per target token"]
    lines = [*report(model.heads, smaller.plan.retained), *prices]
    lines += [options.rise_line(smaller.rise), *checked]
    print(*lines, *fine_tuning_lines(model, result, args.out), sep="\n")
    return 0
