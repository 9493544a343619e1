"""Two methods over all seeds of both: which runs are one model's seeds, and what tests say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from collab_common.errors import UserError
from fairseq_collab.metrics.seeds import SAMPLES, Gain, gain, holm
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
class Compared:
    """A system against the baseline, a gain a metric."""

    system: Path
    gains: list[Gain]


def seeds_of(path: Path, subset: str | None = None) -> dict[int, System]:
    """The translations of one model's finished runs, by seed.

    Args:
        path: a folder of such runs; or one of them, whose other seeds are found beside it: runs of
            the same method and choices.
    """
    one = Run(path)
    alone = one.config_file.exists()
    runs = runs_under(path.resolve().parent if alone else path)
    finished, _ = finished_runs(run.for_subset(subset) for run in runs)
    if alone:
        this = next((run for run in finished if run.name == path.resolve().name), None)
        if this is None:
            raise UserError(f"is not a finished run: {one.state()}", path, "finish it (sweep)")
        finished = [run for run in finished if _model(run) == _model(this)]
    chosen = seeds_of_one(finished)
    return {run.record.seed: read_system(run.folder, subset=run.subset) for run in chosen}


def _model(run: Finished) -> tuple[str, dict[str, str]]:
    choices = {key: value for key, value in run.record.overrides.items() if key != SEED}
    return run.record.method, choices


def compare(
    baseline: Path, systems: Sequence[Path], subset: str | None = None, samples: int = 0
) -> list[Compared]:
    """Every system against the baseline, over the seeds of both, in every metric.

    All p are corrected together.
    """
    theirs = seeds_of(baseline, subset)
    sides = [_in_common(baseline, theirs, path, seeds_of(path, subset)) for path in systems]
    gains = [_gains(side, samples or SAMPLES) for side in sides]
    corrected = iter(holm([one.p for one in chain.from_iterable(gains)]))
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


def _gains(sides: Sides, samples: int) -> list[Gain]:
    before, after = ({number: one.hypotheses for number, one in side.items()} for side in sides)
    references = next(iter(sides[0].values())).references
    return [gain(before, after, references, name, samples) for name in METRICS]


def summary(baseline: Path, found: Sequence[Compared], samples: int = 0) -> str:
    """A table a system: effect sizes first."""
    return render("seeds.md.j2", baseline=baseline, found=found, samples=samples or SAMPLES)


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
