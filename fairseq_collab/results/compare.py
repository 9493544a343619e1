"""Two translations of one set side by side: whether they compare, and what the tests say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from collab_common.errors import UserError
from fairseq_collab.metrics import significance
from fairseq_collab.metrics.significance import METRICS, Result, different
from fairseq_collab.results.tables import grid
from fairseq_collab.runs.translations import System

#: What two runs must have in common to be compared.
SAME = {"data": "data sets", "data_sha256": "data (data_sha256)", "subset": "subsets"}
NOTE = """±: half of a 95 % bootstrap interval. p: two-sided, of these two outputs; it says nothing
about other trainings of the same models."""


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
    """As :func:`fairseq_collab.metrics.significance.paired`, of systems that may be compared.

    Raises:
        UserError: the two cannot be compared, or SACREBLEU_SEED is not a seed.
    """
    check_comparable(baseline, system)
    ours, theirs = system.hypotheses, baseline.hypotheses
    return significance.paired(theirs, ours, baseline.references, test, samples, metrics)


def summary(baseline: System, system: System, results: list[Result]) -> str:
    """A table a test, with signatures and what they do not say."""
    lines = [
        f"baseline: {baseline.path}",
        f"system:   {system.path}",
        f"{different(baseline.hypotheses, system.hypotheses)} of {len(system.hypotheses)} "
        "sentences translated differently",
    ]
    for test in dict.fromkeys(result.test for result in results):
        chosen = [result for result in results if result.test == test]
        cells = [
            [
                one.metric,
                f"{one.baseline:.2f} ± {one.baseline_ci:.2f}",
                f"{one.system:.2f} ± {one.system_ci:.2f}",
                f"{one.difference:+.2f}",
                f"{one.p:.4f}",
            ]
            for one in chosen
        ]
        table = grid(["", "baseline", "system", "difference", "p"], cells)
        lines += ["", f"paired {test}", "", table]
        lines += ["", *(f"{result.metric}: {result.signature}" for result in chosen)]
    return "\n".join([*lines, "", NOTE])


def as_json(baseline: System, system: System, results: list[Result]) -> str:
    """Everything of ``summary`` as one JSON object."""
    return json.dumps(
        {
            "baseline": str(baseline.path),
            "system": str(system.path),
            "sentences": len(system.hypotheses),
            "different": different(baseline.hypotheses, system.hypotheses),
            "results": [asdict(result) for result in results],
        }
    )
