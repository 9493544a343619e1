"""``fairseq-collab bench``: how much faster than stock fairseq is this project?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from collab_common.command import check_folder_of, positive
from collab_common.files import write_json
from collab_common.provenance import cores
from fairseq_collab.bench.models import PRESETS
from fairseq_collab.bench.run import run, table
from fairseq_collab.commands import options

USUAL = ("multi30k", "wmt_en_de")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "bench",
        "Time training and translation with random weights: stock fairseq, this project, and "
        "CTranslate2 (on a CPU, if installed) take turns with the same model and sentences. Prints "
        "how many times as fast as fairseq each is: median, 5th and 95th percentile. Close all "
        "other programs first.",
    )
    parser.add_argument(
        "--presets", nargs="+", choices=PRESETS, default=USUAL,
        help=f"sizes of the models (default: {' '.join(USUAL)})",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="fewer turns and shorter translations")
    parser.add_argument(
        "--threads", type=positive, default=cores(), metavar="N",
        help="CPU threads (default: all cores)",
    )  # fmt: skip
    options.add_cpu(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("bench.json"), metavar="FILE",
        help="the JSON file (default: bench.json)",
    )  # fmt: skip
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    check_folder_of(args.out, "--out")
    found = run(args.presets, args.quick, options.device(args), args.threads)
    write_json(args.out, {**options.made("bench", argv, args.cpu), **found})
    print(table(found["records"]))
    return 0
