"""Two methods over all seeds of both: which runs are one model's seeds, and what tests say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from collab_common.errors import UserError
from fairseq_collab.metrics.seeds import Interval, holm, t_interval, t_test
from fairseq_collab.metrics.significance import METRICS
from fairseq_collab.results.compare import check_comparable
from fairseq_collab.results.html import render
from fairseq_collab.results.rows import Finished, finished_runs, seeds_of_one
from fairseq_collab.runs.run import Run, runs_under
from fairseq_collab.runs.translations import System, read_system

SEED = "common.seed"
#: The baseline and a system, by the seeds that both have.
Sides = Sequence[Mapping[int, System]]


@dataclass(frozen=True)
class Gain:
    """Gain of a system over the baseline, in points of one metric (0 to 100).

    Attributes:
        baseline, system: mean scores over the seeds of both.
        gains: by seed; ``difference`` is their mean.
        seeds_interval: 95 % t-interval of the mean; None for one seed.
        p: two-sided t-test over seeds; None for one seed.
        p_holm: the same, corrected for all tests of the call.
    """

    metric: str
    signature: str
    baseline: float
    system: float
    gains: dict[int, float]
    difference: float
    seeds_interval: Interval | None
    p: float | None
    p_holm: float | None = None


@dataclass(frozen=True)
class Compared:
    """A system against the baseline: one gain per metric."""

    system: Path
    gains: list[Gain]


def seeds_of(path: Path) -> dict[int, System]:
    """The translations of one model's finished runs, by seed.

    Args:
        path: a folder of such runs; or one of them, whose other seeds are found beside it: runs of
            the same method and choices.
    """
    one = Run(path)
    alone = one.config_file.exists()
    runs = runs_under(path.resolve().parent if alone else path)
    finished, _ = finished_runs(runs)
    if alone:
        this = next((run for run in finished if run.name == path.resolve().name), None)
        if this is None:
            raise UserError(f"is not a finished run: {one.state()}", path, "finish it (sweep)")
        finished = [run for run in finished if _model(run) == _model(this)]
    chosen = seeds_of_one(finished)
    return {run.record.seed: read_system(run.folder) for run in chosen}


def _model(run: Finished) -> tuple[str, dict[str, str]]:
    choices = {key: value for key, value in run.record.overrides.items() if key != SEED}
    return run.record.method, choices


def compare(baseline: Path, systems: Sequence[Path]) -> list[Compared]:
    """Every system against the baseline, over the seeds of both, in every metric.

    All p are corrected together.
    """
    theirs = seeds_of(baseline)
    sides = [_in_common(baseline, theirs, path, seeds_of(path)) for path in systems]
    gains = [[_gain(side, metric) for metric in METRICS] for side in sides]
    corrected = iter(holm([one.p for some in gains for one in some]))
    tested = [[replace(one, p_holm=next(corrected)) for one in some] for some in gains]
    return [Compared(path, some) for path, some in zip(systems, tested, strict=True)]


def _in_common(
    baseline: Path, theirs: dict[int, System], path: Path, ours: dict[int, System]
) -> Sides:
    common = sorted(theirs.keys() & ours.keys())
    if not common:
        seeds = [", ".join(map(str, sorted(side))) for side in (theirs, ours)]
        what = f"no seed in common: {seeds[0]} in {baseline}, {seeds[1]} in {path}"
        raise UserError(what, todo="give runs of the same seeds")
    for number in common:
        check_comparable(theirs[number], ours[number])
    return [{number: side[number] for number in common} for side in (theirs, ours)]


def _gain(sides: Sides, metric: str) -> Gain:
    field = metric.lower()
    before, after = (
        {number: float(getattr(one.record, field)) for number, one in side.items()}
        for side in sides
    )
    gains = {number: after[number] - score for number, score in before.items()}
    every = list(gains.values())
    return Gain(
        metric=metric,
        signature=getattr(next(iter(sides[0].values())).record, f"{field}_signature"),
        baseline=fmean(before.values()),
        system=fmean(after.values()),
        gains=gains,
        difference=fmean(every),
        seeds_interval=t_interval(every),
        p=t_test(every),
    )


def summary(baseline: Path, found: Sequence[Compared]) -> str:
    """A table a system: effect sizes first."""
    return render("seeds.md.j2", baseline=baseline, found=found)


def as_json(baseline: Path, found: Sequence[Compared]) -> str:
    """Everything of :func:`summary` as one JSON object."""
    systems = [
        {
            "system": str(one.system),
            "results": [asdict(each) for each in one.gains],
        }
        for one in found
    ]
    return json.dumps({"baseline": str(baseline), "systems": systems})
