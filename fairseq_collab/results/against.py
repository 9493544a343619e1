"""Every model of a table against the baseline's with the same key dimension, seed by seed.

The baseline is a method, or one row of the table by its name there: a method with its choices.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collab_common.errors import UserError
from fairseq_collab.results.compare import paired
from fairseq_collab.results.rows import Finished, Row
from fairseq_collab.results.tables import num
from fairseq_collab.runs.translations import read_system

DEFAULTS = ("concatenated", "fork_concatenated")
NO_TEST = "none"
SAMPLES = 1000
CONFIDENCE = 0.95
P = Callable[[Finished, Finished], float]


@dataclass(frozen=True)
class Difference:
    """What a row gains over the baseline (BLEU points).

    Attributes:
        mean: mean of the differences over seeds that both have; None without such seeds.
        interval: 95 % t-interval of that mean, with seeds - 1 degrees of freedom; None for one.
        p: paired bootstrap of each seed's two translations; None if they could not be tested.
        reason: why there is no mean, or no p.
    """

    row: Row
    mean: float | None = None
    interval: tuple[float, float] | None = None
    p: tuple[tuple[int, float | None], ...] = ()
    reason: str = ""

    @property
    def p_text(self) -> str:
        """The p of each seed, in one line."""
        return ", ".join(f"seed {seed}: {num(p, '.3f', 'not tested')}" for seed, p in self.p)


def choose_baseline(rows: Sequence[Row], wanted: str | None) -> str | None:
    """What to test against: the method or row wanted, else concatenated heads if they are there.

    Raises:
        UserError: the wanted one is not in the table.
    """
    methods = sorted({row.method for row in rows})
    if wanted is None:
        return next((method for method in DEFAULTS if method in methods), None)
    if wanted == NO_TEST:
        return None
    if not any(is_named(row, wanted) for row in rows):
        raise UserError(
            f"no run of the method {wanted!r}, and no row of that name",
            where="--against",
            todo=f"give one of {', '.join(methods)}, a row's name in the table, or {NO_TEST}",
        )
    return wanted


def is_named(row: Row, baseline: str) -> bool:
    """Whether the baseline is the row itself or its method."""
    return baseline in (row.method, row.label)


def bootstrap(baseline: Finished, ours: Finished) -> float:
    """p of two runs' translations: paired bootstrap, two-sided."""
    a, b = (read_system(run.folder, subset=run.subset) for run in (baseline, ours))
    (result,) = paired(a, b, "bootstrap", SAMPLES, metrics=("BLEU",))
    return result.p


def differences(rows: Sequence[Row], baseline: str, p: P = bootstrap) -> list[Difference]:
    """Test every row but those of the baseline, in the order of ``rows``.

    Args:
        p: of two runs of one seed, the baseline's first; raises UserError where it cannot tell.
    """
    return [
        _difference(row, _counterpart(row, rows, baseline), p)
        for row in rows
        if not is_named(row, baseline) and row.runs
    ]


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
    gains = [(ours.record.bleu or 0) - (base.record.bleu or 0) for base, ours in pairs]
    found: list[tuple[int, float | None]] = []
    reason = ""
    for base, ours in pairs:
        try:
            found.append((ours.record.seed, p(base, ours)))
        except UserError as error:
            found.append((ours.record.seed, None))
            reason = f"not tested: {' '.join(str(error).split())}"
    return Difference(row, statistics.fmean(gains), t_interval(gains), tuple(found), reason)


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the mean of normally distributed values; None for fewer than two."""
    if len(values) < 2:
        return None
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    half = t_quantile(len(values) - 1) * deviation / math.sqrt(len(values))
    return mean - half, mean + half


def t_quantile(freedom: int) -> float:
    """The t with :data:`CONFIDENCE` of Student's distribution between -t and t, by bisection.

    Of the packages that are needed anyway, none has it.
    """
    low, high = 0.0, 1000.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _between(middle, freedom) < CONFIDENCE else (low, middle)
    return low


def _between(t: float, freedom: int) -> float:
    """Probability of (-t, t): Abramowitz and Stegun, formulas 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    series = math.sin(angle) * total
    return 2 / math.pi * (angle + series) if odd else series
