"""``fairseq-collab prune``: a trained model becomes a smaller one, its heads really gone."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from collab_common.command import check_folder_of, positive
from collab_common.errors import UserError
from fairseq_collab.analysis.heads import content
from fairseq_collab.commands import options
from fairseq_collab.models.layers import SITES
from fairseq_collab.models.site_options import named_sites, per_site
from fairseq_collab.prune import choices, votes
from fairseq_collab.prune.choices import MEASURE, Gates
from fairseq_collab.prune.shapes import own_options
from fairseq_collab.prune.surgery import Kept, load, narrowed, pruned
from fairseq_collab.trained import opener
from fairseq_collab.trained.opener import Trained

OF_IMPORTANCE = ("remove_share", "as_many_as", "by", "sites")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "prune",
        "Takes heads out of a trained transformer or transformer language model (stock fairseq's "
        "or ours with concatenated heads). The result is a transformer_headsize_n, or "
        "transformer_lm_headsize_n, and of use like any checkpoint; to fine-tune it, give "
        "fairseq-train the --arch and the options that are printed, and --finetune-from-model. "
        "Feed-forward units alone go of models with heads of any kind, which they keep.",
        "example: fairseq-collab prune average.pt --votes average.pt.votes.json --output pruned.pt",
    )
    options.add_checkpoint(parser, options.TRANSFORMER)
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--votes", type=Path, metavar="FILE", help="the heads that fairseq-collab vote has found"
    )
    who.add_argument(
        "--gates", action="store_true", help="the heads whose gates are open in a trained "
        "transformer_gated_heads; a layer may lose all of them",
    )  # fmt: skip
    who.add_argument(
        "--importance", type=Path, metavar="FILE", help="the most important heads by the "
        "heads.json of fairseq-collab heads: --keep of each attention, all but --remove-share, or "
        "--as-many-as",
    )  # fmt: skip
    who.add_argument(
        "--keep-heads", nargs="+", metavar="SITE:HEADS",
        help="these heads, by layer: encoder:0,3/1,2 (0 and 3 of the first layer, 1 and 2 of the "
        "second), decoder:0 (the first of each layer), cross:-/0 (none in the first); a site "
        "without keeps all",
    )  # fmt: skip
    who.add_argument(
        "--random", type=int, metavar="SEED", help="--keep heads of each attention by chance"
    )
    parser.add_argument(
        "--keep", metavar="C",
        help="how many heads stay: a number, or three joined by commas, for encoder, decoder and "
        "decoder-encoder attention (default with --votes: one a group)",
    )  # fmt: skip
    parser.add_argument(
        "--remove-share", type=float, metavar="X",
        help="with --importance: this share of the heads goes, the least important of all layers "
        "together, measures having length 1 in each; every layer keeps one",
    )  # fmt: skip
    parser.add_argument(
        "--as-many-as", type=Path, metavar="CHECKPOINT",
        help="with --importance: as many heads stay, of all layers of --sites together, as this "
        "checkpoint has; every layer keeps one",
    )  # fmt: skip
    parser.add_argument(
        "--by", metavar="MEASURE", help=f"with --importance: what counts (default: {MEASURE})"
    )
    parser.add_argument(
        "--sites", metavar="SITES", help="with --importance: attentions that lose heads, some of "
        f"{', '.join(SITES)}, joined by commas (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--round", action="store_true",
        help="with --gates: take those between 0 and 1 for the nearer of both",
    )  # fmt: skip
    parser.add_argument(
        "--ffn-dim", type=positive, metavar="N",
        help="keep N units of each feed-forward layer, those with the largest weights",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="the data folder (default: where it was in training); its dictionaries are read",
    )  # fmt: skip
    options.add_user_dir(parser)
    options.add_output(parser, "--output", "FILE", "the checkpoint to write")
    return parser


def heads_go(args: argparse.Namespace) -> bool:
    """Whether heads are to go, not feed-forward units alone."""
    said = (args.votes, args.gates, args.importance, args.keep_heads, args.keep)
    return any(said) or args.random is not None


def check_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leave the program where options do not make sense together."""
    if not heads_go(args) and args.ffn_dim is None:
        parser.error(
            "one of --votes, --gates, --importance, --keep-heads, --random, --ffn-dim says what "
            "goes"
        )
    if not args.gates:
        options.refuse(parser, args, ("round",), "is for --gates")
    if args.importance is None:
        options.refuse(parser, args, OF_IMPORTANCE, "is for --importance")


def choose(args: argparse.Namespace, trained: Trained, gates: Gates | None) -> Kept:
    """The heads that stay, by whichever option says so."""
    heads = trained.heads
    try:
        keep = None if args.keep is None else per_site("--keep", args.keep)
        sites = named_sites("--sites", args.sites or ",".join(SITES))
    except ValueError as error:
        raise UserError(str(error)) from error
    if args.votes is not None:
        return votes.read(args.votes).kept(heads, keep)
    if args.importance is not None:
        if [keep, args.remove_share, args.as_many_as].count(None) != 2:
            todo = "give one of --keep, --remove-share and --as-many-as"
            raise UserError("say how many heads stay", where="--importance", todo=todo)
        found = content.read(args.importance)
        measure = content.measure(found, args.by or MEASURE, heads, args.importance)
        if keep is not None:
            return choices.most_important(measure, heads, keep, sites)
        stay = None
        if args.as_many_as is not None:
            like = opener.load(args.as_many_as, args.data).heads
            stay = sum(sum(like[site]) for site in sites)
        return choices.importance_kept(measure, heads, args.remove_share, sites, stay)
    if args.random is not None:
        if keep is None:
            raise UserError("say how many heads stay", where="--keep")
        return choices.random_heads(heads, keep, args.random)
    if keep is not None:
        todo = "add --votes or --random, or --importance"
        raise UserError("which heads stay?", where="--keep", todo=todo)
    if gates is not None:
        return choices.open_heads(gates)
    if args.keep_heads is not None:
        return choices.named_heads(args.keep_heads, heads)
    return choices.all_heads(heads)


def options_for_training(result: Trained) -> str:
    """What ``fairseq-train`` must be told to build the pruned model."""
    said = ["--arch", result.arch]
    for name, value in own_options({**result.options, "_name": result.arch}).items():
        if value is False:  # of a preset's true, which the command line has no flag against
            continue
        said.append(f"--{name.replace('_', '-')}")
        if value is not True:
            said.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    return shlex.join(said)


def report(heads: choices.Heads, kept: Kept) -> list[str]:
    """Lines on which heads stay."""
    lines = []
    for site, counts in heads.items():
        if not counts:  # such as a language model's encoder
            continue
        stay = [" ".join(map(str, sorted(layer))) or "-" for layer in kept[site]]
        gone = f"{sum(map(len, kept[site]))} of {sum(counts)} heads"
        lines.append(f"{site}: {gone}: {' / '.join(stay)}")
        lines += [
            f"{site} layer {layer}: no head is left; its attention is a constant"
            for layer, heads in enumerate(kept[site])
            if not heads
        ]
    return lines


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check_options(parser, args)
    check_folder_of(args.output, "--output")
    options.import_plugin(args)
    if heads_go(args):
        trained = load(args.checkpoint, args.data)
        gates = choices.decided_gates(trained, args.round) if args.gates else None
        kept = choose(args, trained, gates)
        result = pruned(choices.without_gates(trained, gates), kept, args.ffn_dim)
        lines = report(trained.heads, kept)
    else:
        whole = choices.without_gates(opener.load(args.checkpoint, args.data, to_save=True))
        result, lines = narrowed(whole, args.ffn_dim), []
    opener.save(result, args.output)
    print(*lines, f"{args.output}: {options_for_training(result)}", sep="\n")
    return 0
