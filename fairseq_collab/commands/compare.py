"""``fairseq-collab compare``: paired bootstrap test of two translations of one set."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_collab.results.compare import comparison
from fairseq_collab.runs.translations import read_system


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab compare",
        description="Paired bootstrap test (sacreBLEU) of two translations of one test set. "
        "For several seeds of each method, see fairseq-collab table --against.",
    )
    about = "a run's folder, or a file of translations"
    parser.add_argument("baseline", type=Path, help=about)
    parser.add_argument("system", type=Path, help=about)
    parser.add_argument("--reference", type=Path, help="raw reference text (default: the runs')")
    args = parser.parse_args(argv)
    print(comparison(*(read_system(path, args.reference) for path in (args.baseline, args.system))))
    return 0
