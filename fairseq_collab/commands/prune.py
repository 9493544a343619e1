"""``fairseq-collab prune``: remove heads from a trained model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collab_common.command import positive, share
from collab_common.errors import UserError
from fairseq_collab.commands import options

if TYPE_CHECKING:
    from fairseq_collab.prune.choices import Heads
    from fairseq_collab.prune.surgery import Kept
    from fairseq_collab.trained.opener import Trained


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "prune",
        "Remove heads from a trained transformer or transformer language model (stock fairseq's "
        "or ours with separate keys). The result is a transformer_headsize_n, or "
        "transformer_lm_headsize_n. To fine-tune it, give fairseq-train the printed options and "
        "--finetune-from-model, or a sweep the Hydra configuration next to it (OUT with .yaml).",
        "example: fairseq-collab prune average.pt --votes votes.json --out pruned.pt",
    )
    options.add_checkpoint(parser, options.TRANSFORMER)
    options.add_data(parser, "that of the training")
    options.add_out(parser, "FILE", "checkpoint to write")
    options.add_force(parser)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument(
        "--votes", type=Path, metavar="FILE", help="keep the elected heads: file of fairseq-collab "
        "vote",
    )  # fmt: skip
    who.add_argument(
        "--gates", action="store_true", help="keep the heads of a transformer_gated_heads whose "
        "gates are open, rounded to 0 or 1; a layer may lose all heads",
    )  # fmt: skip
    who.add_argument(
        "--importance", type=Path, metavar="FILE", help="keep the most important heads: heads.json "
        "of fairseq-collab heads; how many: --keep, --remove-share or --as-many-as",
    )  # fmt: skip
    who.add_argument(
        "--keep-heads", nargs="+", metavar="TYPE:HEADS",
        help="keep these heads, by layer: encoder:0,3/1,2 (0 and 3 of the first layer, 1 and 2 of "
        "the second), decoder:0 (head 0 of each layer), cross:-/0 (none in the first layer); "
        "attention types that are not named keep all heads",
    )  # fmt: skip
    who.add_argument(
        "--random", type=int, metavar="SEED", help="keep --keep random heads of each attention"
    )
    parser.add_argument(
        "--keep", metavar="C", type=positive,
        help="with --importance or --random: heads to keep in each attention",
    )  # fmt: skip
    parser.add_argument(
        "--remove-share", type=share, metavar="X",
        help="with --importance: share of all heads to remove; every layer keeps one",
    )  # fmt: skip
    parser.add_argument(
        "--as-many-as", type=Path, metavar="CHECKPOINT",
        help="with --importance: keep the number of heads of this model; every layer keeps one",
    )  # fmt: skip
    options.add_user_dir(parser)
    return parser


def check_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with status 2 for options that contradict each other."""
    number = [name for name in ("keep", "remove_share", "as_many_as") if getattr(args, name)]
    if args.remove_share == 0:
        number.append("remove_share")
    if args.importance is not None:
        if len(number) != 1:
            parser.error("--importance needs one of --keep, --remove-share and --as-many-as")
        return
    options.reject(parser, args, ("remove_share", "as_many_as"), "needs --importance")
    if (args.random is None) != (args.keep is None):
        parser.error("--random and --keep go together" if args.random is not None else
                     "--keep needs --importance or --random")  # fmt: skip


def choose(args: argparse.Namespace, trained: Trained) -> Kept:
    """The heads to keep, by whichever option but ``--gates``."""
    from fairseq_collab.analysis import content
    from fairseq_collab.prune import choices, votes
    from fairseq_collab.trained import opener

    heads = trained.heads
    if args.votes is not None:
        return votes.read(args.votes, heads)
    if args.keep_heads is not None:
        return choices.named_heads(args.keep_heads, heads)
    if args.random is not None:
        return choices.random_heads(heads, args.keep, args.random)
    found = content.read(args.importance)
    measure = content.measure(found, choices.MEASURE, heads, args.importance)
    if args.keep is not None:
        return choices.most_important(measure, heads, args.keep)
    if args.as_many_as is not None:
        number = total(opener.load(args.as_many_as, args.data).heads)
    else:
        number = total(heads) - round(args.remove_share * total(heads))
    return choices.importance_kept(measure, heads, number)


def total(heads: Heads) -> int:
    """The number of heads of a model."""
    return sum(map(sum, heads.values()))


def report(heads: Heads, kept: Kept) -> list[str]:
    """The kept heads, one line per attention type."""
    from fairseq_collab.prune.choices import NO_HEADS

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
    from fairseq_collab.prune import choices
    from fairseq_collab.prune.surgery import load, pruned, training_options, write_configuration
    from fairseq_collab.trained import opener

    trained = load(args.checkpoint, args.data)
    kept = choices.open_heads(trained) if args.gates else choose(args, trained)
    result = pruned(choices.without_gates(trained), kept)
    opener.save(result, args.out)
    write_configuration(result, args.out)
    lines = report(trained.heads, kept)
    print(*lines, f"{args.out}: {training_options(result)}", sep="\n")
    return 0
