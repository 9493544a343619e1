"""What ``recipes/gpu_check.sh`` runs: all checks of a device, a line each; 1 if one has failed."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import fairseq_collab  # noqa: F401  (first: it lets fairseq be imported at all)

from . import attention, decoding, speed, training
from .core import Check, Place, described, report


def all_checks(place: Place, folder: Path) -> Iterator[Check]:
    """In the order of the report; what trains writes into ``folder``."""
    yield from attention.checks(place)
    yield from decoding.checks(place)
    yield from training.checks(place, folder)
    yield from speed.checks(place)


def main(argv: Sequence[str]) -> int:
    """Run the checks; the exit status."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--quick", action="store_true", help="at the smallest sizes")
    args = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print(f"gpu_check: {described(args.device)}")
    with tempfile.TemporaryDirectory() as folder:
        failed = report(all_checks(Place(args.device, args.quick), Path(folder)))
    print("gpu_check: a check has failed" if failed else "gpu_check: all is well")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
