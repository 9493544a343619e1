"""Two methods over all seeds of both: which runs are one model's seeds, and what tests say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from collab_common.errors import UserError
from fairseq_collab.metrics.contrast import BySentence, share_right
from fairseq_collab.metrics.seeds import SAMPLES, Gain, gain, gain_of_counts, holm
from fairseq_collab.metrics.significance import METRICS
from fairseq_collab.results.compare import check_comparable
from fairseq_collab.results.html import render
from fairseq_collab.results.rows import Finished, finished_runs, seeds_of_one
from fairseq_collab.runs.record import read
from fairseq_collab.runs.run import Run, runs_under
from fairseq_collab.runs.translations import System, read_system

SEED = "common.seed"
#: The baseline and a system, by the seeds that both have.
Sides = Sequence[Mapping[int, System]]
#: Right contrastive pairs of the runs that keep them, by folder.
Right = Mapping[Path, BySentence]


@dataclass(frozen=True)
class Compared:
    """A system against the baseline, a gain a metric.

    Attributes:
        unmeasured: runs without counts of contrastive pairs, where others here have them.
    """

    system: Path
    gains: list[Gain]
    unmeasured: list[str]


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

    Metrics are those of translations, and accuracies on contrastive pairs where all of the runs
    have them.  The p of translations are corrected together, and those of accuracies are.
    """
    theirs = seeds_of(baseline, subset)
    sides = [_in_common(baseline, theirs, path, seeds_of(path, subset)) for path in systems]
    everyone = {one.path: one for side in sides for runs in side for one in runs.values()}
    right = {path: found for path, one in everyone.items() if (found := _by_sentence(one))}
    gains = [_gains(side, right, samples or SAMPLES) for side in sides]
    corrected: dict[int, float | None] = {}
    for of_translations in (True, False):
        every = chain.from_iterable(gains)
        family = [one for one in every if (one.metric in METRICS) == of_translations]
        corrected |= zip(map(id, family), holm([one.p for one in family]), strict=True)
    tested = [[replace(one, p_holm=corrected[id(one)]) for one in some] for some in gains]
    return [
        Compared(path, some, _unmeasured(side, right))
        for path, some, side in zip(systems, tested, sides, strict=True)
    ]


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


def _gains(sides: Sides, right: Right, samples: int) -> list[Gain]:
    before, after = ({number: one.hypotheses for number, one in side.items()} for side in sides)
    references = next(iter(sides[0].values())).references
    found = [gain(before, after, references, name, samples) for name in METRICS]
    return found + _gains_in_accuracy(sides, right, samples)


def _gains_in_accuracy(sides: Sides, right: Right, samples: int) -> list[Gain]:
    """A gain a phenomenon, where all runs keep what is right of it; else none."""
    measured = [
        {number: right[one.path] for number, one in side.items() if one.path in right}
        for side in sides
    ]
    if any(len(side) < len(sides[0]) for side in measured):
        return []
    signatures = sorted({one.signature for side in measured for one in side.values()})
    if len(signatures) > 1:
        what = f"different contrastive pairs: {' and '.join(signatures)}"
        raise UserError(what, todo="score all on the same pairs (contrast)")
    pairs = signatures[0].partition("|interval")[0]
    found = []
    for phenomenon in next(iter(measured[0].values())).counts:
        counts = [
            {number: one.counts[phenomenon] for number, one in side.items()} for side in measured
        ]
        found.append(gain_of_counts(counts, share_right, phenomenon, pairs, samples))
    return found


def _by_sentence(system: System) -> BySentence | None:
    """Right contrastive pairs of a run; None where its scores do not speak of them.

    Raises:
        UserError: they cannot be read.
    """
    recorded = system.record and system.record.contrast_signature
    if not recorded:
        return None
    file = Run(system.path).contrast_file
    found = read(BySentence, file, "score the pairs again (fairseq-collab contrast)")
    return found if found and found.signature == recorded else None


def _unmeasured(sides: Sides, right: Right) -> list[str]:
    systems = [system for side in sides for system in side.values()]
    if not any(system.record and system.record.contrast_signature for system in systems):
        return []
    return [system.path.name for system in systems if system.path not in right]


def summary(baseline: Path, found: Sequence[Compared], samples: int = 0) -> str:
    """A table a system: effect sizes first."""
    return render("seeds.md.j2", baseline=baseline, found=found, samples=samples or SAMPLES)


def as_json(baseline: Path, found: Sequence[Compared]) -> str:
    """Everything of :func:`summary` as one JSON object."""
    systems = [
        {
            "system": str(one.system),
            "unmeasured": one.unmeasured,
            "results": [asdict(each) for each in one.gains],
        }
        for one in found
    ]
    return json.dumps({"baseline": str(baseline), "systems": systems})
