"""``fairseq-collab vote``: elect one head per group (Ni et al. 2023)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collab_lab.cli import options


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "vote",
        "Elect one head per group. The frozen model reads one epoch, and in every batch each "
        "group votes for the head with the largest cosine with its centre. Write the votes for "
        "fairseq-collab prune --votes.",
        "example: fairseq-collab vote checkpoints/average.pt data/multi30k --out votes.json",
    )
    about = "trained transformer_grouped_heads or transformer_lm_grouped_heads"
    options.add_model(parser, about, data=None)
    options.add_out(parser, "FILE", "file to write")
    parser.add_argument("--subset", default="train", help="subset to read (default: train)")
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    options.check_out(args)
    model = options.model(args)
    from collab_lab.heads import votes
    from collab_lab.trained.identity import hash_of
    from collab_lab.trained.sentences import batches
    from fairseq_collab.attention.head_groups import head_group_attentions

    count = votes.count_votes(model, batches(model, args.subset))
    content = {
        "checkpoint": args.checkpoint.name,
        "model": hash_of(model.model),
        "data": options.names_of(args.data),
        "subset": args.subset,
        "feature": head_group_attentions(model.model)[0].feature,
        "batches": count.batches,
        "votes": count.votes,
    }
    votes.write(args.out, content)
    print(f"{args.out}: votes of {count.batches:,} batches")
    return 0
