"""``fairseq-collab rank``: how much of what its heads may use does a trained model use?

Measured in :mod:`fairseq_collab.analysis.rank.measure`, written in
:mod:`fairseq_collab.results.rank`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from collab_common.command import positive
from collab_common.files import make_folder
from fairseq_collab.analysis.heads.source import load
from fairseq_collab.analysis.rank.measure import measure
from fairseq_collab.commands import options
from fairseq_collab.results.rank import summary, write
from fairseq_collab.trained.opener import singles


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "rank",
        "Spectra and numerical ranks of a trained transformer's attention heads (stock "
        "fairseq's or ours): of Wq Wk^T for each head and for all heads of a layer, and of the "
        "logits on real sentences against their length. Writes a table and a figure.",
    )
    options.add_checkpoint(parser, "a trained translation or language model")
    options.add_data(parser)
    parser.add_argument("--subset", default="valid", help="which sentences (default: valid)")
    parser.add_argument(
        "--sentences", type=positive, default=200, metavar="N",
        help="how many of them, evenly spread (default: 200)",
    )  # fmt: skip
    parser.add_argument(
        "--bin-width", type=positive, default=5, metavar="N",
        help="how many lengths make one line of the table (default: 5)",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=options.share, metavar="X",
        help="singular values above X times the largest count as rank (default: all that rounding "
        "does not explain, as numpy's matrix_rank: the longer side times 2.2e-16)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the results (default: CHECKPOINT.rank)"
    )
    options.add_user_dir(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    options.import_plugin(args)
    loaded = load(args.checkpoint, args.data)
    sentences = singles(loaded, args.subset, args.sentences)
    out = args.out or args.checkpoint.with_name(f"{args.checkpoint.name}.rank")
    make_folder(out)
    rows = measure(loaded, sentences, args.bin_width, args.tolerance)
    title = f"{args.checkpoint}, {len(sentences)} sentences of {args.subset}"
    names = write(rows, out, title)
    print(summary(rows))
    print(f"{out}: {', '.join(names)}")
    return 0
