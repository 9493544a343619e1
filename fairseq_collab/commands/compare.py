"""``fairseq-collab compare``: significance tests of two translations of one set."""

from __future__ import annotations

import argparse
from pathlib import Path

from collab_common.command import not_negative
from fairseq_collab.metrics.significance import TESTS
from fairseq_collab.results import seeds
from fairseq_collab.results.compare import as_json, paired, summary
from fairseq_collab.runs.translations import read_system


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab compare",
        description="Paired significance tests (sacreBLEU) of two translations of the same set; "
        "with --seeds, of methods over all seeds of their runs.",
    )
    about = "a run's folder, or a file of translations; with --seeds, a folder of runs that "
    about += "differ in their seed alone, or one of them"
    parser.add_argument("baseline", type=Path, help=about)
    parser.add_argument("system", type=Path, nargs="+", help="likewise; several with --seeds")
    parser.add_argument(
        "--seeds", action="store_true",
        help="compare over all seeds of both, paired by seed: t-interval over seeds, p corrected "
        "by Holm for all tests",
    )  # fmt: skip
    parser.add_argument("--reference", type=Path, help="raw reference text (default: the runs')")
    parser.add_argument("--test", choices=[*TESTS, "both"], default="bootstrap")
    parser.add_argument(
        "--samples", type=not_negative, default=0, metavar="N",
        help="default: 1000 for bootstrap, 10000 for randomisation",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    if args.seeds:
        if args.reference or args.samples or args.test != "bootstrap":
            parser.error("argument --seeds: goes with --json alone")
        found = seeds.compare(args.baseline, args.system)
        told = (args.baseline, found)
        print(seeds.as_json(*told) if args.json else seeds.summary(*told))
        return 0
    if len(args.system) > 1:
        parser.error("argument system: several go with --seeds")
    (other,) = args.system
    baseline, system = (read_system(path, args.reference) for path in (args.baseline, other))
    tests = list(TESTS) if args.test == "both" else [args.test]
    results = [result for test in tests for result in paired(baseline, system, test, args.samples)]
    print(as_json(baseline, system, results) if args.json else summary(baseline, system, results))
    return 0
