"""``fairseq-collab compare``: paired significance tests of two translations of one set."""

from __future__ import annotations

import argparse
from pathlib import Path

from collab_common.command import not_negative
from fairseq_collab.metrics.significance import TESTS
from fairseq_collab.results.compare import as_json, paired, summary
from fairseq_collab.runs.translations import read_system


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab compare",
        description="Paired significance tests (sacreBLEU) of two translations of one test set. "
        "For several seeds of each method, see fairseq-collab table --against.",
    )
    about = "a run's folder, or a file of translations"
    parser.add_argument("baseline", type=Path, help=about)
    parser.add_argument("system", type=Path, help=about)
    parser.add_argument("--reference", type=Path, help="raw reference text (default: the runs')")
    parser.add_argument("--test", choices=[*TESTS, "both"], default="bootstrap")
    parser.add_argument(
        "--samples", type=not_negative, default=0, metavar="N",
        help="default: 1000 for bootstrap, 10000 for randomisation",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    baseline, system = (read_system(path, args.reference) for path in (args.baseline, args.system))
    tests = list(TESTS) if args.test == "both" else [args.test]
    results = [result for test in tests for result in paired(baseline, system, test, args.samples)]
    print(as_json(baseline, system, results) if args.json else summary(baseline, system, results))
    return 0
