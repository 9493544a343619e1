"""``fairseq-collab heads-kept``: which heads a series of pruned models has kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collab_common.command import check_folder
from fairseq_collab.commands import options
from fairseq_collab.results.heads import kept


def main(argv: Sequence[str]) -> int:
    parser = options.parser_of(
        "heads-kept",
        "The heads that models have kept along pruning: how many by site and layer, and in which "
        f"roles. Writes {kept.NAME}, {kept.TABLE}, layers.png and, where models were analysed, "
        "roles.png.",
        "example: fairseq-collab heads-kept pruned/1/all-*.pt --heads heads/1 --out heads/1/all",
    )
    parser.add_argument(
        "checkpoints", type=Path, nargs="+", metavar="PRUNED", help="of fairseq-collab prune"
    )
    parser.add_argument(
        "--heads", type=Path, required=True, metavar="DIR",
        help="with NAME/heads.json of fairseq-collab heads for PRUNED/NAME.pt, fine-tuned or not; "
        "a model without one is said to be not analysed",
    )  # fmt: skip
    options.add_output(parser, "--out", "DIR", "of the results")
    args = parser.parse_args(argv)
    check_folder(args.heads, "give that of fairseq-collab heads")
    models = kept.read(args.checkpoints, args.heads)
    print(kept.write(models, options.made("heads-kept", argv), args.out), end="")
    return 0
