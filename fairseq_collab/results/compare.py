"""``fairseq-collab compare``: is the difference between two translations of one set chance?

Tests are sacreBLEU's (``sacrebleu.significance.PairedTest``): paired bootstrap resampling (Koehn
2004) and paired approximate randomisation (Riezler and Maxwell 2005), two-sided, seeded by
SACREBLEU_SEED (12345 if unset).  They ask how the scores would change with other sentences, not
with another training: a small p says that these two models differ, not that their methods do.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from collab_common.errors import UserError
from fairseq_collab.runs.translations import System, read_system

logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it tells every step

SEED_VARIABLE = "SACREBLEU_SEED"
#: Our names of the tests, sacreBLEU's, and its default numbers of samples.
TESTS = {"bootstrap": ("bs", 1000), "randomisation": ("ar", 10000)}
METRICS = {"BLEU": BLEU, "chrF": CHRF}
#: What two runs must have in common to be compared.
SAME = {"data": "data sets", "data_sha256": "data (data_sha256)", "subset": "subsets"}
NOTE = """±: half of a 95 % bootstrap interval. p: two-sided, of these two outputs; it says nothing
about other trainings of the same models."""


@dataclass(frozen=True)
class Result:
    """One metric (0 to 100) under one test; ``ci`` is half of a 95 % bootstrap interval."""

    test: str
    metric: str
    baseline: float
    baseline_ci: float
    system: float
    system_ci: float
    difference: float
    p: float
    signature: str


def check_comparable(baseline: System, system: System) -> None:
    """Refuse translations of different sets, and runs on different data.

    Raises:
        UserError: they differ in what is compared.
    """
    for field, plural in SAME.items():
        ours, theirs = (getattr(one.record, field, None) for one in (baseline, system))
        if baseline.record and system.record and ours != theirs:
            raise UserError(
                f"different {plural}: {ours} in {baseline.path}, {theirs} in {system.path}",
                todo="compare their outputs, with --reference, if they translate the same set",
            )
    if len(baseline.references) != len(system.references):
        raise UserError(
            f"{len(baseline.references)} sentences in {baseline.path}, "
            f"{len(system.references)} in {system.path}",
            todo="compare translations of the same set",
        )
    if baseline.references != system.references:
        raise UserError(
            f"{baseline.path} and {system.path} were scored against different references",
            todo="compare translations of the same set",
        )


def paired(
    baseline: System,
    system: System,
    test: str,
    samples: int = 0,
    metrics: Sequence[str] = tuple(METRICS),
) -> list[Result]:
    """Run one of ``TESTS`` with ``samples`` samples (0: sacreBLEU's default), one result a metric.

    Raises:
        UserError: the two cannot be compared, or SACREBLEU_SEED is not a seed.
    """
    check_comparable(baseline, system)
    seed()
    short, default = TESTS[test]
    signatures, scores = PairedTest(
        [("baseline", baseline.hypotheses), ("system", system.hypotheses)],
        {name: METRICS[name]() for name in metrics},
        [baseline.references],
        test_type=short,
        n_samples=samples or default,
        # Randomisation has no intervals of its own: 1,000 bootstrap samples, sacreBLEU's default.
        n_ar_confidence=0 if short == "ar" else -1,
    )()
    least = least_p(baseline, system)
    return [
        _result(test, ours, scores[name], least, str(signatures[name]))
        for ours, name in zip(metrics, signatures, strict=True)
    ]


def different(baseline: System, system: System) -> int:
    """The number of sentences that the two translate differently."""
    return sum(a != b for a, b in zip(baseline.hypotheses, system.hypotheses, strict=True))


def least_p(baseline: System, system: System) -> float:
    """The smallest two-sided p that n differing sentences can give: 2 of their 2^n exchanges.

    sacreBLEU counts samples that differ by *more* than the two systems do, which none does if they
    are identical: it then reports 1/(samples + 1), its smallest p.
    """
    return min(1.0, 2.0 ** (1 - different(baseline, system)))


def seed() -> int | None:
    """The seed of the tests, by the environment; None for a new one every time.

    Raises:
        UserError: it is not a seed.  (0 would be printed in signatures, but not used.)
    """
    text = os.environ.get(SEED_VARIABLE, "12345")
    if text.lower() == "none":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise UserError(
            f"{text!r} is no seed", where=SEED_VARIABLE, todo="set a whole number above 0, or unset"
        )
    return int(text)


def _result(test: str, metric: str, scores: Any, least: float, signature: str) -> Result:
    baseline, system = scores
    return Result(
        test=test,
        metric=metric,
        baseline=float(baseline.score),
        baseline_ci=float(baseline.ci),
        system=float(system.score),
        system_ci=float(system.ci),
        difference=float(system.score - baseline.score),
        p=max(float(system.p_value), least),
        signature=signature,
    )


def summary(baseline: System, system: System, results: list[Result]) -> str:
    """A table a test, with signatures and what they do not say."""
    total = len(system.hypotheses)
    lines = [
        f"baseline: {baseline.path}",
        f"system:   {system.path}",
        f"{different(baseline, system)} of {total} sentences translated differently",
    ]
    for test in dict.fromkeys(result.test for result in results):
        chosen = [result for result in results if result.test == test]
        lines += ["", f"paired {test}", ""]
        lines += ["| | baseline | system | difference | p |", "|---|---:|---:|---:|---:|"]
        lines += [_line(result) for result in chosen]
        lines += ["", *(f"{result.metric}: {result.signature}" for result in chosen)]
    return "\n".join([*lines, "", NOTE])


def _line(result: Result) -> str:
    return (
        f"| {result.metric} | {result.baseline:.2f} ± {result.baseline_ci:.2f} "
        f"| {result.system:.2f} ± {result.system_ci:.2f} "
        f"| {result.difference:+.2f} | {result.p:.4f} |"
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab compare",
        description="Paired significance tests (sacreBLEU) of two translations of the same set.",
    )
    for name in ("baseline", "system"):
        parser.add_argument(name, type=Path, help="a run's folder, or fairseq-generate's output")
    parser.add_argument("--reference", type=Path, help="raw reference text (default: the runs')")
    parser.add_argument(
        "--gen-subset",
        metavar="SUBSET",
        help="compare the runs on this test set (default: their own, dataset.gen_subset)",
    )
    parser.add_argument("--test", choices=[*TESTS, "both"], default="bootstrap")
    parser.add_argument(
        "--samples",
        type=int,
        default=0,
        metavar="N",
        help="default: 1000 for bootstrap, 10000 for randomisation",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    if args.samples < 0:
        parser.error("--samples: give a number above 0")
    if args.gen_subset and not (args.baseline.is_dir() or args.system.is_dir()):
        parser.error("argument --gen-subset: only runs have test sets")
    baseline, system = (
        read_system(path, args.reference, args.gen_subset) for path in (args.baseline, args.system)
    )
    tests = list(TESTS) if args.test == "both" else [args.test]
    results = [result for test in tests for result in paired(baseline, system, test, args.samples)]
    print(as_json(baseline, system, results) if args.json else summary(baseline, system, results))
    return 0


def as_json(baseline: System, system: System, results: list[Result]) -> str:
    """Everything of ``summary`` as one JSON object."""
    return json.dumps(
        {
            "baseline": str(baseline.path),
            "system": str(system.path),
            "sentences": len(system.hypotheses),
            "different": different(baseline, system),
            "results": [asdict(result) for result in results],
        }
    )
