"""What a method gains over another, when both were trained with several seeds.

Paired by seed, with gains g_s = score(system, s) - score(baseline, s), mean g, over S seeds:

    t-interval   g -+ t(S - 1) sd(g_s) / sqrt(S)              other seeds, the same test set
    bootstrap    percentiles of the mean of g_s* on T*         other seeds, and other sentences

where s* are S seeds and T* as many sentences as the test set has, both drawn with replacement.  All
seeds translate the same sentences, so that a draw of sentences is the same for all of them, and for
both systems (Owen 2007, "The pigeonhole bootstrap").  With few seeds a bootstrap over them is too
narrow, by sqrt((S - 1)/S) at S: the t-interval is the one to be trusted for seeds, this one shows
what the sentences add.

Whatever is a function of counts summed over sentences is compared so: BLEU, chrF.

Several tests on one page are corrected by Holm's step-down procedure (Holm 1979, "A simple
sequentially rejective multiple test procedure").
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_collab.metrics.significance import scorer_of, seed

CONFIDENCE = 0.95
SAMPLES = 1000
Interval = tuple[float, float]
#: Translations by seed.
Texts = Mapping[int, list[str]]
#: The score of such counts, summed over sentences: ``(n,)``.
Score = Callable[[NDArray[Any]], float]


@dataclass(frozen=True)
class Gain:
    """What a system has more than the baseline, in points of one metric (0 to 100).

    Attributes:
        baseline, system: mean scores over the seeds of both.
        gains: by seed; ``difference`` is their mean.
        seeds_interval: 95 % t-interval of the mean; None for one seed.
        sentences_interval: 95 % of the bootstrap over sentences alone, for these trainings.
        both_interval: 95 % of the bootstrap over seeds and sentences.
        p: two-sided t-test over seeds; None for one seed.
        p_holm: the same, corrected for what else is tested.
    """

    metric: str
    signature: str
    baseline: float
    system: float
    gains: dict[int, float]
    difference: float
    seeds_interval: Interval | None
    sentences_interval: Interval
    both_interval: Interval
    p: float | None
    p_holm: float | None = None


def gain(
    baseline: Texts, system: Texts, references: list[str], metric: str, samples: int = SAMPLES
) -> Gain:
    """Compare two systems over the seeds of both, in one of :data:`.significance.METRICS`."""
    scorer = scorer_of(metric, references, references=[references])
    seeds = sorted(baseline.keys() & system.keys())
    stats = np.array(  # (2, S, N, n)
        [[statistics_of(scorer, side[s]) for s in seeds] for side in (baseline, system)]
    )
    score = partial(total_score, scorer)
    ours = [[score(one.sum(0)) for one in side] for side in stats]
    gains = [b - a for a, b in zip(*ours, strict=True)]
    chance = np.random.default_rng(seed())
    drawn = resampled(score, stats, samples, chance)  # (samples, S)
    picks = chance.integers(len(seeds), size=drawn.shape)
    return Gain(
        metric=metric,
        signature=str(scorer.get_signature()),
        baseline=statistics.fmean(ours[0]),
        system=statistics.fmean(ours[1]),
        gains=dict(zip(seeds, gains, strict=True)),
        difference=statistics.fmean(gains),
        seeds_interval=t_interval(gains),
        sentences_interval=percentiles(drawn.mean(1)),
        both_interval=percentiles(np.take_along_axis(drawn, picks, 1).mean(1)),
        p=t_test(gains),
    )


def drawn_gains(
    baseline: list[str], system: list[str], references: list[str], chance: np.random.Generator
) -> NDArray[np.float64]:
    """BLEU that one system has more than the baseline, on drawn sentences: ``(SAMPLES,)``."""
    scorer = scorer_of("BLEU", references, references=[references])
    stats = np.array([[statistics_of(scorer, one)] for one in (baseline, system)])  # (2, 1, N, n)
    return resampled(partial(total_score, scorer), stats, SAMPLES, chance)[:, 0]


def resampled(
    score: Score, stats: NDArray[Any], samples: int, chance: np.random.Generator
) -> NDArray[np.float64]:
    """Gains of each seed on drawn sentences: ``(samples, S)``.

    Args:
        stats: ``(2, S, N, n)``, the n statistics of N sentences, of both systems and all seeds.
    """
    _, seeds, sentences, _ = stats.shape
    found = np.empty((samples, seeds))
    for row in found:
        weights = np.bincount(chance.integers(sentences, size=sentences), minlength=sentences)
        totals = np.einsum("n,bsnk->bsk", weights, stats)
        scores = [[score(one) for one in side] for side in totals]
        row[:] = np.subtract(scores[1], scores[0])
    return found


def statistics_of(scorer: Any, hypotheses: list[str]) -> list[list[int]]:
    """What sacreBLEU counts of each sentence, against the scorer's references: ``N x n``."""
    found: list[list[int]] = scorer._extract_corpus_statistics(hypotheses, None)
    return found


def total_score(scorer: Any, totals: NDArray[Any]) -> float:
    """The corpus score of such counts, summed over sentences: ``(n,)``."""
    return float(scorer._compute_score_from_stats(totals.tolist()).score)


def percentiles(values: NDArray[np.float64]) -> Interval:
    """The middle 95 % of samples."""
    low, high = np.percentile(values, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)


def holm(p: Sequence[float | None]) -> list[float | None]:
    """p corrected for their number m, in their order: ``max over j <= i of (m - j + 1) p_(j)``.

    ``p_(1) <= ... <= p_(m)`` are the sorted ones; what exceeds 1 is 1 (Holm 1979).  None, where
    nothing was tested, stays and does not count.
    """
    tested = sorted((one, place) for place, one in enumerate(p) if one is not None)
    found, largest = [*p], 0.0
    for rank, (one, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * one))
        found[place] = largest
    return found


# ---- Student's distribution: of the packages that are needed anyway, none has it -----------------


def t_interval(values: Sequence[float]) -> Interval | None:
    """95 % interval of the mean of normally distributed values; None where the t-test has none."""
    if t_test(values) is None:
        return None
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    half = t_quantile(len(values) - 1) * deviation / math.sqrt(len(values))
    return mean - half, mean + half


def t_test(values: Sequence[float]) -> float | None:
    """Two-sided p of the mean of normally distributed values against 0.

    None for fewer than two, and where all are alike but not 0: shares of few pairs may be so by
    chance, and then say nothing of other seeds.
    """
    if len(values) < 2:
        return None
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    if math.isclose(deviation, 0, abs_tol=1e-9):
        return None if mean else 1.0
    return 1 - _between(abs(mean) * math.sqrt(len(values)) / deviation, len(values) - 1)


def t_quantile(freedom: int) -> float:
    """The t with :data:`CONFIDENCE` of Student's distribution between -t and t, by bisection."""
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
