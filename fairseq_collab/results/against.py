"""Every model of a table against the baseline's with the same key dimension, seed by seed.

The baseline is a method, or one row of the table by its name there: a method with its choices.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collab_common.errors import UserError
from fairseq_collab.metrics.seeds import holm, t_interval, t_test
from fairseq_collab.results.compare import paired
from fairseq_collab.results.rows import Finished, Row, value_of
from fairseq_collab.results.tables import num
from fairseq_collab.runs.translations import read_system

DEFAULTS = ("concatenated", "fork_concatenated")
NO_TEST = "none"
SAMPLES = 1000
P = Callable[[Finished, Finished], float]


@dataclass(frozen=True)
class Difference:
    """What a row gains over the baseline (BLEU points).

    Attributes:
        mean: mean of the differences over seeds that both have; None without such seeds.
        interval: 95 % t-interval of that mean, with seeds - 1 degrees of freedom; None for one.
        seeds_p: two-sided t-test of that mean against 0; None for one seed.
        holm_p: the same, corrected for the number of rows that are tested.
        p: paired bootstrap of each seed's two translations; None if they could not be tested.
        reason: why there is no mean, or no p.
    """

    row: Row
    mean: float | None = None
    interval: tuple[float, float] | None = None
    seeds_p: float | None = None
    holm_p: float | None = None
    p: tuple[tuple[int, float | None], ...] = ()
    reason: str = ""

    @property
    def p_text(self) -> str:
        """The p of each seed, in one line."""
        return ", ".join(f"seed {seed}: {num(p, '.3f', 'not tested')}" for seed, p in self.p)


def choose_baseline(rows: Sequence[Row], wanted: str | None) -> str | None:
    """The method or row to test against; unless wanted, concatenated heads if they are there."""
    methods = sorted({row.method for row in rows})
    if wanted is None:
        return next((method for method in DEFAULTS if method in methods), None)
    if wanted == NO_TEST:
        return None
    if not any(is_named(row, wanted) for row in rows):
        what = f"no run of the method {wanted!r}, and no row of that name"
        todo = f"give one of {', '.join(methods)}, a row's name in the table, or {NO_TEST}"
        raise UserError(what, "--against", todo)
    return wanted


def is_named(row: Row, baseline: str) -> bool:
    """Whether the baseline is the row itself or its method."""
    return baseline in (row.method, row.label)


def bootstrap(baseline: Finished, ours: Finished) -> float:
    """p of two runs' translations: paired bootstrap, two-sided."""
    a, b = (read_system(run.folder) for run in (baseline, ours))
    (result,) = paired(a, b, "bootstrap", SAMPLES, metrics=("BLEU",))
    return result.p


def differences(rows: Sequence[Row], baseline: str, p: P = bootstrap) -> list[Difference]:
    """Test every row but those of the baseline, in the order of ``rows``.

    Args:
        p: of two runs of one seed, the baseline's first; raises UserError where it cannot tell.
    """
    found = [
        _difference(row, _counterpart(row, rows, baseline), p)
        for row in rows
        if not is_named(row, baseline) and row.runs
    ]
    corrected = holm([one.seeds_p for one in found])
    return [replace(one, holm_p=p) for one, p in zip(found, corrected, strict=True)]


def _counterpart(row: Row, rows: Sequence[Row], baseline: str) -> Row | None:
    """The baseline's row with the same ``x`` and, if it has several, the same other choices.

    Without ``x`` a baseline that was trained with several choices has one row for each of them, and
    most methods none to be tested against.
    """
    there = [other for other in rows if is_named(other, baseline) and other.x == row.x]
    if len(there) == 1:
        return there[0]
    return next((other for other in there if other.variant == row.variant), None)


def _difference(row: Row, baseline: Row | None, p: P) -> Difference:
    theirs = {run.record.seed: run for run in baseline.runs} if baseline else {}
    pairs = [(theirs[run.record.seed], run) for run in row.runs if run.record.seed in theirs]
    if not pairs:
        return Difference(row, reason="no finished baseline run with the same seed")
    gains = [value_of(ours, "bleu") - value_of(base, "bleu") for base, ours in pairs]
    found: list[tuple[int, float | None]] = []
    reason = ""
    for base, ours in pairs:
        try:
            found.append((ours.record.seed, p(base, ours)))
        except UserError as error:
            found.append((ours.record.seed, None))
            reason = f"not tested: {' '.join(str(error).split())}"
    mean, interval, seeds_p = statistics.fmean(gains), t_interval(gains), t_test(gains)
    return Difference(row, mean, interval, seeds_p, None, tuple(found), reason)
