"""``python -m fairseq_collab.evaluation.decoding_speed``: formerly ``bench --decoding``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from collab_common import processor
from collab_common.command import positive, run
from collab_common.files import make_folder
from fairseq_collab.commands import bench

PROG = "python -m fairseq_collab.evaluation.decoding_speed"


def main(argv: Sequence[str]) -> int:
    """Run ``fairseq-collab bench --decoding``; its exit status."""
    parser = argparse.ArgumentParser(
        prog=PROG, description="Former spelling of `fairseq-collab bench --decoding`."
    )
    add = parser.add_argument
    add("data", metavar="DATA", help="a folder for fairseq")
    add("--models", nargs="+", required=True, metavar="FILE", help="the first is compared with")
    add("--names", nargs="+", required=True, metavar="NAME", help="of the models, for the table")
    add("--rounds", type=positive, default=5, metavar="N", help="default: 5")
    add("--threads", type=positive, default=processor.cores(), help="default: all cores")
    add("--out", type=Path, required=True, metavar="FILE", help="JSON to write")
    add("--cpu", action="store_true", help="use no GPU, even if there is one")
    args = parser.parse_args(argv)
    device = "cpu" if args.cpu or not torch.cuda.is_available() else "cuda"
    options = ["--decoding", *args.models, "--names", *args.names, "--data", args.data]
    options += ["--rounds", str(args.rounds), "--threads", str(args.threads)]
    options += ["--device", device, "--out", str(args.out)]

    def start() -> int:
        make_folder(args.out.parent)
        return bench.main(options)

    return run(PROG, start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
