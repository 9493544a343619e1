"""``recipes/gpu_check.sh`` runs this: all checks of a device, a line each."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence

import torch

import fairseq_collab  # noqa: F401  (first: it lets fairseq be imported at all)

from . import attention, models
from .core import Check, Place, report


def all_checks(place: Place) -> Iterator[Check]:
    """In the order of the report."""
    yield from attention.checks(place)
    yield from models.checks(place)


def main(argv: Sequence[str]) -> int:
    """Run the checks; the exit status."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--quick", action="store_true", help="at the smallest sizes")
    args = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"gpu_check: {name}, torch {torch.__version__}")
    failed = report(all_checks(Place(args.device, args.quick)))
    print("gpu_check: a check has failed" if failed else "gpu_check: all checks have passed")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
