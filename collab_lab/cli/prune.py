"""``fairseq-collab prune``: remove heads from a trained model."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.command import positive, share
from collab_common.errors import UserError
from collab_lab.cli import options

if TYPE_CHECKING:
    from torch import Tensor

    from collab_lab.pruning.choices import Heads
    from collab_lab.pruning.surgery import Kept
    from collab_lab.trained.attentions import Attention
    from collab_lab.trained.opener import Trained


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "prune",
        "Remove heads from a trained transformer or transformer language model (stock fairseq's "
        "or ours with separate keys). The result is a transformer_headsize_n, or "
        "transformer_lm_headsize_n. To fine-tune it, give fairseq-train the printed options and "
        "--finetune-from-model, or a sweep the Hydra configuration next to it (OUT with .yaml). "
        "Without another choice the heads go that cost least: the price is the expected loss in "
        "bits per target token, and their means stay in the output's bias.",
        "example: fairseq-collab prune average.pt data-bin --remove-share 0.3 --out pruned.pt",
    )
    options.add_checkpoint(parser, options.TRANSFORMER)
    options.add_data(parser, "that of the training")
    options.add_out(parser, "FILE", "checkpoint to write")
    options.add_force(parser)
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--remove-share", type=share, metavar="X", help="share of heads to remove")
    number.add_argument(
        "--as-many-as", type=Path, metavar="CHECKPOINT",
        help="keep the number of heads of this model",
    )  # fmt: skip
    number.add_argument(
        "--keep", metavar="C", type=positive, help="number of heads to keep in each attention"
    )
    parser.add_argument(
        "--types", nargs="+", choices=ATTENTION_TYPES, default=ATTENTION_TYPES,
        help="attention types that lose heads (default: all)",
    )  # fmt: skip
    other = parser.add_argument_group("other choices of heads (default: by price)")
    who = other.add_mutually_exclusive_group()
    who.add_argument(
        "--votes", type=Path, metavar="FILE", help="keep the elected heads: file of fairseq-collab "
        "vote",
    )  # fmt: skip
    who.add_argument(
        "--gates", action="store_true", help="keep the heads of a transformer_gated_heads whose "
        "gates are open, rounded to 0 or 1; a layer may lose all heads",
    )  # fmt: skip
    who.add_argument(
        "--importance", type=Path, metavar="FILE",
        help="remove the least important heads: heads.json of fairseq-collab heads",
    )  # fmt: skip
    who.add_argument(
        "--keep-heads", nargs="+", metavar="TYPE:HEADS",
        help="keep these heads, by layer: encoder:0,3/1,2 (0 and 3 of the first layer, 1 and 2 of "
        "the second), decoder:0 (head 0 of each layer), cross:-/0 (none in the first layer); "
        "attention types that are not named keep all heads",
    )  # fmt: skip
    who.add_argument("--random", type=int, metavar="SEED", help="remove random heads")
    other.add_argument(
        "--normalise", action="store_true",
        help="with --importance: importances of each layer get norm 1, as in the paper",
    )  # fmt: skip
    options.add_pass(parser)
    options.add_check(parser)
    options.add_cpu(parser)
    options.add_user_dir(parser)
    return parser


#: How many heads are removed, where a choice ranks them.
NUMBERS = ("remove_share", "as_many_as", "keep")


def check_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with status 2 for options that contradict each other."""
    if args.importance is None:
        options.reject(parser, args, ("normalise",), "needs --importance")
    if not by_price(args):
        options.reject(parser, args, ("sentences", "subset"), "is of the choice by price")
    if not ranks(args):
        reason = "needs a choice by price, --importance or --random"
        options.reject(parser, args, (*NUMBERS, "types"), reason)
    elif all(getattr(args, name) is None for name in NUMBERS):
        parser.error("give a number of heads: --remove-share, --as-many-as or --keep")


def ranks(args: argparse.Namespace) -> bool:
    """Whether heads are ranked, so that any number of them can be removed."""
    return not (args.votes or args.gates or args.keep_heads)


def by_price(args: argparse.Namespace) -> bool:
    return ranks(args) and args.importance is None and args.random is None


def choose(args: argparse.Namespace, trained: Trained) -> Kept:
    """The heads to keep, by a choice that tells their number."""
    from collab_lab.pruning import choices, votes

    if args.votes is not None:
        return votes.read(args.votes, trained.heads)
    if args.keep_heads is not None:
        return choices.named_heads(args.keep_heads, trained.heads)
    return choices.open_heads(trained)


def cheapest(args: argparse.Namespace, trained: Trained) -> Callable[..., tuple[Kept, float]]:
    """The choice of as many heads as the options say, from their pairs."""
    from collab_lab.pruning import choices
    from collab_lab.trained import opener

    heads = trained.heads
    if args.keep is not None:
        choices.check_enough(heads, args.keep)
        return partial(choices.cheapest_of_each, heads, keep=args.keep)
    number = round((args.remove_share or 0) * total(heads, args.types))
    if args.as_many_as is not None:
        other = opener.load(args.as_many_as, args.data).heads
        number = total(heads, args.types) - total(other, args.types)
        if number < 0:
            raise UserError(f"has more heads than {trained.path}", args.as_many_as, "swap them")
    return partial(choices.cheapest, heads, number=number)


def importances(args: argparse.Namespace, trained: Trained) -> dict[Attention, Tensor]:
    """Pairs of ``--importance`` or ``--random``."""
    from collab_lab.analysis import content
    from collab_lab.analysis.importance import normalised
    from collab_lab.pruning import choices

    if args.random is not None:
        measure = choices.random_measure(trained.heads, args.random)
    else:
        found = content.read(args.importance)
        measure = content.measure(found, choices.MEASURE, trained.heads, args.importance)
    return choices.on_diagonals(normalised(measure) if args.normalise else measure, trained)


def total(heads: Heads, types: Sequence[AttentionType]) -> int:
    """The number of heads of these attention types."""
    return sum(sum(heads[type_]) for type_ in types)


def report(heads: Heads, kept: Kept) -> list[str]:
    """The kept heads, one line per attention type."""
    from collab_lab.pruning.choices import NO_HEADS

    lines = []
    for type_, counts in heads.items():
        if not counts:  # such as the encoder of a language model
            continue
        stay = [" ".join(map(str, sorted(layer))) or NO_HEADS for layer in kept[type_]]
        number = f"{sum(map(len, kept[type_]))} of {sum(counts)} heads"
        lines.append(f"{type_}: {number}: {' / '.join(stay)}")
        lines += [
            f"{type_} layer {layer}: no head is left; its attention is a constant"
            for layer, left in enumerate(kept[type_])
            if not left
        ]
    return lines


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_intermixed_args(argv)
    check_options(parser, args)
    options.check_out(args, args.out.with_suffix(".yaml"))
    if args.out.suffix != ".pt":
        raise UserError("is no name of a checkpoint", args.out, "give --out a name with .pt")
    options.import_models(args)
    from collab_lab.pricing.statistics import collect, samples
    from collab_lab.pruning import choices
    from collab_lab.pruning.surgery import load, pruned, training_options, write_configuration
    from collab_lab.trained import opener

    trained = load(args.checkpoint, args.data)
    trained.model.to(options.device(args))
    whole = choices.without_gates(trained)
    statistics, price = None, []
    if not ranks(args):
        kept = choose(args, trained)
    else:
        choice = cheapest(args, whole)
        if by_price(args):
            statistics = collect(whole, samples(whole, args.subset, args.sentences))
            pairs = {one: found.pairs for one, found in statistics.items()}
        else:
            pairs = importances(args, whole)
        kept, bits = choice({one: it for one, it in pairs.items() if one.type in args.types})
        price = [f"price: {bits:.4f} bits per target token"] * by_price(args)
    result = pruned(whole, kept, statistics)
    checked = options.checked(args, whole, result)
    result.model.cpu()
    opener.save(result, args.out)
    write_configuration(result, args.out)
    lines = [*report(trained.heads, kept), *price, *options.check_lines(checked)]
    print(*lines, f"{args.out}: {training_options(result)}", sep="\n")
    return 0
