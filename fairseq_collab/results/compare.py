"""Two translations of one set side by side: whether they compare, and what the tests say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

from collab_common.errors import UserError
from fairseq_collab.metrics import significance
from fairseq_collab.metrics.significance import METRICS, Result, different
from fairseq_collab.results.render import render
from fairseq_collab.runs.translations import System

#: What two runs must have in common to be compared.
SAME = {"data": "data sets", "data_sha256": "data (data_sha256)", "subset": "subsets"}


def check_comparable(baseline: System, system: System) -> None:
    """Reject translations of different sets, and runs on different data."""
    for field, plural in SAME.items():
        ours, theirs = (getattr(one.record, field, None) for one in (baseline, system))
        if baseline.record and system.record and ours != theirs:
            what = f"different {plural}: {ours} in {baseline.path}, {theirs} in {system.path}"
            todo = "compare their outputs, with --reference, if they translate the same set"
            raise UserError(what, todo=todo)
    sizes = len(baseline.references), len(system.references)
    if baseline.references != system.references:
        raise UserError(
            f"{sizes[0]} sentences in {baseline.path}, {sizes[1]} in {system.path}"
            if sizes[0] != sizes[1]
            else f"{baseline.path} and {system.path} were scored against different references",
            todo="compare translations of the same set",
        )


def paired(
    baseline: System,
    system: System,
    test: str,
    samples: int = 0,
    metrics: Sequence[str] = METRICS,
) -> list[Result]:
    """One result a metric of the system against the baseline, if the two can be compared."""
    check_comparable(baseline, system)
    texts = baseline.hypotheses, system.hypotheses, baseline.references
    return significance.paired(*texts, test, samples, metrics)


def summary(baseline: System, system: System, results: list[Result]) -> str:
    """A table a test, with signatures and what they do not say."""
    number = different(baseline.hypotheses, system.hypotheses)
    by_test = groupby(results, key=lambda result: result.test)
    tests = {test: list(group) for test, group in by_test}
    return render("compare.md.j2", baseline=baseline, system=system, different=number, tests=tests)


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
