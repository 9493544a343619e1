"""Tests over seeds: what a method gains over another, and corrected p of several tests.

Paired by seed, with gains g_s = score(system, s) - score(baseline, s) and mean g over S seeds:

    t-interval   g -+ t(S - 1) sd(g_s) / sqrt(S)      other seeds, the same test set
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy import stats

CONFIDENCE = 0.95
Interval = tuple[float, float]


def t_interval(values: Sequence[float]) -> Interval | None:
    """95 % interval of the mean of normally distributed values; None where the t-test has none."""
    if t_test(values) is None:
        return None
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
    return mean - half, mean + half


def t_test(values: Sequence[float]) -> float | None:
    """Two-sided p of the mean of normally distributed values against 0.

    None for fewer than two values, and where all are equal but not 0: they say nothing about other
    seeds.
    """
    if len(values) < 2:
        return None
    if math.isclose(statistics.stdev(values), 0, abs_tol=1e-9):
        return None if statistics.fmean(values) else 1.0
    return float(stats.ttest_1samp(values, 0).pvalue)


def holm(p: Sequence[float | None]) -> list[float | None]:
    """p corrected for their number m, in their order: ``max over j <= i of (m - j + 1) p_(j)``.

    ``p_(1) <= ... <= p_(m)`` are the sorted ones, and 1 is the largest value (Holm 1979, "A simple
    sequentially rejective multiple test procedure").  None, where nothing was tested, stays.
    """
    tested = sorted((one, place) for place, one in enumerate(p) if one is not None)
    found, largest = [*p], 0.0
    for rank, (one, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * one))
        found[place] = largest
    return found
