"""Differences between two methods that were trained with the same seeds.

Paired by seed, with gains g_s = score(system, s) - score(baseline, s) and mean g over S seeds:

    t-interval   g -+ t(S - 1) sd(g_s) / sqrt(S)    other seeds, same test set

Several tests on one page are corrected by Holm's step-down procedure (Holm 1979, "A simple
sequentially rejective multiple test procedure").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


class Gain(NamedTuple):
    """The mean of gains over seeds.

    Attributes:
        low, high, p: 95 % t-interval and two-sided t-test of the mean against 0; None for fewer
            than two gains, and where all gains are equal.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def gain_of(gains: Sequence[float]) -> Gain:
    """The mean of gains with its t-interval and t-test."""
    mean = float(np.mean(gains))
    if len(gains) < 2 or np.isclose(np.ptp(gains), 0, atol=1e-9):
        return Gain(mean)
    found = stats.ttest_1samp(gains, 0)
    low, high = found.confidence_interval(CONFIDENCE)
    return Gain(mean, float(low), float(high), float(found.pvalue))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """p corrected for the number m of tests, in the given order; None (not tested) stays.

    The i-th smallest p becomes ``max over j <= i of (m - j + 1) p_j``, at most 1.
    """
    tested = sorted((one, place) for place, one in enumerate(p) if one is not None)
    found, largest = [*p], 0.0
    for rank, (one, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * one))
        found[place] = largest
    return found
