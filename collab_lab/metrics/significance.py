"""Whether two systems differ by chance: over sentences of one set, and over seeds of training.

Over sentences, the test is sacreBLEU's (``sacrebleu.significance.PairedTest``): paired bootstrap
resampling (Koehn 2004), two-sided, seeded by SACREBLEU_SEED (12345 if unset).  A small p says that
these two models differ, not that their methods do.

Over seeds, two methods are trained with equal seeds, with gains
g_s = score(system, s) - score(baseline, s) and mean g over S seeds:

    t-interval   g -+ t(S - 1) sd(g_s) / sqrt(S)    other seeds, same test set
    equivalence  both of g > -m and g < m, each by a one-sided t-test, for a margin m said before
                 (Schuirmann 1987)

Several tests on one page are corrected by Holm's step-down procedure (Holm 1979, "A simple
sequentially rejective multiple test procedure").
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from scipy import stats

from collab_lab.metrics.bleu import tokenizer

logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it logs every step

METRICS = ("BLEU", "chrF")
#: BLEU below which systems hardly translate, and a difference says little about them.
LOW = 5


@dataclass(frozen=True)
class Result:
    """One metric (0 to 100); ``ci`` is half of a 95% interval."""

    metric: str
    baseline: float
    baseline_ci: float
    system: float
    system_ci: float
    difference: float
    p: float
    signature: str


def paired(baseline: list[str], system: list[str], references: list[str]) -> list[Result]:
    """Test a system against the baseline: one result per metric."""
    signatures, scores = PairedTest(
        [("baseline", baseline), ("system", system)],
        # Scorers that have the references count their words only once.
        {name: scorer_of(name, references, references=[references]) for name in METRICS},
        None,
        test_type="bs",
    )()
    least, results = least_p(baseline, system), []
    for name, key in zip(METRICS, signatures, strict=True):
        theirs, ours = cast(list[Any], scores[key])
        results.append(
            Result(
                metric=name,
                baseline=float(theirs.score),
                baseline_ci=float(theirs.ci),
                system=float(ours.score),
                system_ci=float(ours.ci),
                difference=float(ours.score - theirs.score),
                p=max(float(ours.p_value), least),
                signature=str(signatures[key]),
            )
        )
    return results


def scorer_of(metric: str, text: Sequence[str], **options: Any) -> Any:
    """sacreBLEU's scorer of one of :data:`METRICS` for ``text``, as in :func:`.bleu.score`."""
    if metric == "chrF":
        return CHRF(**options)
    return BLEU(tokenize=tokenizer(text), **options)


def different(baseline: list[str], system: list[str]) -> int:
    """The number of sentences that the two translate differently."""
    return sum(a != b for a, b in zip(baseline, system, strict=True))


def least_p(baseline: list[str], system: list[str]) -> float:
    """The smallest two-sided p that n differing sentences can give: 2 of their 2^n exchanges.

    sacreBLEU counts samples that differ by *more* than the two systems do, which none does if they
    are identical: it then reports 1/(samples + 1), its smallest p.
    """
    return min(1.0, 2.0 ** (1 - different(baseline, system)))


# ---- over seeds ---------------------------------------------------------------------------------

CONFIDENCE = 0.95


class Gain(NamedTuple):
    """The mean of gains over seeds.

    Attributes:
        low, high, p: 95% t-interval and two-sided t-test of the mean against 0; None for fewer
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
    test = stats.ttest_1samp(gains, 0)
    low, high = test.confidence_interval(CONFIDENCE)
    return Gain(mean, float(low), float(high), float(test.pvalue))


def within(gains: Sequence[float], margin: float) -> float | None:
    """p of two one-sided t-tests that the mean gain is between ``-margin`` and ``margin``.

    Returns:
        the larger p of the two; None for fewer than two gains, and where all gains are equal.
    """
    if len(gains) < 2 or np.isclose(np.ptp(gains), 0, atol=1e-9):
        return None
    above = stats.ttest_1samp(gains, -margin, alternative="greater")
    below = stats.ttest_1samp(gains, margin, alternative="less")
    return float(max(above.pvalue, below.pvalue))


def gain_per_unit(gains: ArrayLike, units: ArrayLike) -> Gain:
    """``sum gains / sum units``, such as bits per token over sentences, with its t-interval.

    The standard error is that of a ratio of two sums (Cochran 1977, Sampling Techniques, 2.11):
    of ``gains - mean units``.
    """
    change, weights = np.asarray(gains, float), np.asarray(units, float)
    mean = float(change.sum() / weights.sum())
    if len(change) < 2:
        return Gain(mean)
    errors = change - mean * weights
    error = float(np.sqrt(len(errors) * np.sum(errors**2) / (len(errors) - 1)) / weights.sum())
    if not error:
        return Gain(mean)
    low, high = stats.t.interval(CONFIDENCE, len(errors) - 1, mean, error)
    p = 2 * stats.t.sf(abs(mean) / error, len(errors) - 1)
    return Gain(mean, float(low), float(high), float(p))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """p corrected for the number m of tests, in the given order; None (not tested) stays.

    The i-th smallest p becomes ``max over j <= i of (m - j + 1) p_j``, at most 1.
    """
    tested = sorted((value, index) for index, value in enumerate(p) if value is not None)
    corrected, largest = [*p], 0.0
    for rank, (value, index) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * value))
        corrected[index] = largest
    return corrected
