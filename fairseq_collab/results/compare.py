"""Two translations of one set side by side: whether they compare, and what the tests say."""

from __future__ import annotations

from collab_common.errors import UserError
from fairseq_collab.metrics import significance
from fairseq_collab.metrics.significance import different
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


def comparison(baseline: System, system: System) -> str:
    """The table that ``fairseq-collab compare`` prints, with signatures and limits."""
    check_comparable(baseline, system)
    texts = baseline.hypotheses, system.hypotheses
    return render(
        "compare.md.j2",
        baseline=baseline,
        system=system,
        different=different(*texts),
        results=significance.paired(*texts, baseline.references),
    )
