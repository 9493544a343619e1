"""``fairseq-collab vote``: which heads stand for their groups? (Ni et al. 2023)"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from collab_common.command import check_folder_of, positive
from collab_common.errors import UserError
from fairseq_collab.attention.groups import ELECTIONS
from fairseq_collab.attention.head_groups import FEATURES, head_group_attentions
from fairseq_collab.commands import options
from fairseq_collab.models.site_options import per_site
from fairseq_collab.prune import votes
from fairseq_collab.prune.choices import without_gates
from fairseq_collab.prune.surgery import load
from fairseq_collab.trained.opener import epoch


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "vote",
        "The frozen model reads one epoch, and in every batch each group of heads votes for the "
        "one that is most like its centre. Writes the votes, for fairseq-collab prune --votes.",
        "example: fairseq-collab vote checkpoints/average.pt data/multi30k",
    )
    options.add_checkpoint(parser, options.TRANSFORMER)
    options.add_data(parser)
    parser.add_argument("--subset", default="train", help="what is read (default: train)")
    parser.add_argument(
        "--rule", choices=votes.RULES, default="group",
        help="group: of each group its most voted head stays; top: the heads with most votes stay, "
        "whatever their groups, as in the paper's released code (default: group)",
    )  # fmt: skip
    parser.add_argument(
        "--groups", metavar="C", type=options.typed(groups),
        help="group the heads anew: a number, or three joined by commas, for encoder, decoder and "
        "decoder-encoder attention (default: the groups that they were trained in)",
    )  # fmt: skip
    parser.add_argument(
        "--feature", choices=FEATURES, action="append",
        help="what of the heads is compared; given several times, each of them votes (default: as "
        "they were trained; else value)",
    )  # fmt: skip
    parser.add_argument(
        "--election", choices=ELECTIONS, default="cosine",
        help="cosine: the head with the largest cosine with the centre stands for the group, and "
        "of equals the one with the longest feature; released: the nearest one, as in the paper's "
        "released code, where the two heads of a pair are equally near and rounding decides; "
        "random: a member by chance, the paper's ablation (default: cosine)",
    )  # fmt: skip
    parser.add_argument(
        "--count", choices=votes.COUNTS, default="votes",
        help="votes: each batch counts one for the elected head of each group; scores: for every "
        "head its cosine with the centre, the paper's ablation (default: votes)",
    )  # fmt: skip
    parser.add_argument(
        "--rho", type=float, metavar="X",
        help="refuse groups that are not stable: whose centres in a batch are off by more than X "
        "times their length, on average",
    )  # fmt: skip
    parser.add_argument(
        "--max-tokens", type=positive, metavar="N", help="of a batch (default: as in training)"
    )
    options.add_cpu(parser)
    options.add_user_dir(parser)
    options.add_output(parser, "--output", "FILE", "default: CHECKPOINT.votes.json", required=False)
    return parser


def groups(text: str) -> str:
    """The value of ``--groups``."""
    per_site("--groups", text)
    return text


def check_stable(count: votes.Count, rho: float | None, path: Path) -> None:
    """Refuse votes of groups that still move."""
    if rho is not None and not count.shift <= rho:
        raise UserError(
            f"its groups are not stable: in a batch their centres are off by {count.shift:.4f} of "
            f"their length, more than --rho {rho}",
            where=path,
            todo="train it longer, or give a larger --rho",
        )


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.count == "scores":
        options.refuse(parser, args, ("election",), "needs --count votes: scores elect no head")
    output = args.output or args.checkpoint.with_name(f"{args.checkpoint.name}.votes.json")
    check_folder_of(output, "--output")
    options.import_plugin(args)
    trained = without_gates(load(args.checkpoint, args.data))
    try:
        model = votes.grouped_model(trained, args.groups)
    except ValueError as error:
        raise UserError(str(error), where="--groups") from error
    model.to(options.device(args))
    read = epoch(trained.with_model(model), args.subset, args.max_tokens)
    features = args.feature or [head_group_attentions(model)[0].feature]
    count = votes.count_votes(model, read, features, args.election, args.count)
    check_stable(count, args.rho, args.checkpoint)
    content = {
        "checkpoint": args.checkpoint.name,
        "data": args.data.resolve().name,
        "subset": args.subset,
        "feature": ",".join(features),
        "election": args.election if args.count == "votes" else None,
        "count": args.count,
        "rule": args.rule,
        "batches": count.batches,
        "stability": {"changed": round(count.changed, 6), "shift": round(count.shift, 6)},
        "votes": count.votes,
    }
    votes.write(output, content)
    print(
        f"{output}: votes of {count.batches:,} batches; in a batch {count.changed:.1%} of the "
        f"heads are outside their group, and its centre is off by {count.shift:.1%} of its length"
    )
    return 0
