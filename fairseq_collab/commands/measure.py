"""``fairseq-collab measure``: time and memory of the factorisation, beside TensorLy's."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from collab_common.command import check_folder_of, run
from collab_common.files import write_atomic
from collab_common.provenance import circumstances
from fairseq_collab.bench.factorisation import METHODS, SIZES, mean_spectrum, measure, once
from fairseq_collab.commands import options


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "measure",
        "Time and memory of what fairseq-collab reparametrize computes, beside TensorLy's, at the "
        "size of larger models: one attention, with spectra of a trained transformer's heads of "
        "64.",
        "example: fairseq-collab measure --spectra average.pt --out timing.json",
    )
    parser.add_argument("--spectra", type=Path, required=True, metavar="CHECKPOINT")
    options.add_output(parser, "--out", "FILE", "JSON", required=False)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--one", nargs=2, metavar=("SIZE", "METHOD"), help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    if args.out:
        check_folder_of(args.out, "--out")
    torch.set_num_threads(1)
    if args.one:
        name, method = args.one
        size = SIZES[name]
        print(json.dumps(once(method, size, size.dim // 2, mean_spectrum(args.spectra))))
        return 0
    spectrum = mean_spectrum(args.spectra)
    rows = [row for name in args.sizes for row in measure(name, spectrum, args.methods)]
    result = json.dumps({"rows": rows, **circumstances(cpu=True)}, indent=1)
    if args.out:
        write_atomic(args.out, result + "\n")
    print(result)
    return 0


if __name__ == "__main__":  # also under its former name, fairseq_collab.reparametrize.measure
    sys.exit(run("fairseq-collab measure", lambda: main(sys.argv[1:])))
