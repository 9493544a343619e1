"""Tests whether two systems differ by chance: over the sentences of a set, or over seeds.

Over sentences, the test is the paired bootstrap (Koehn 2004), two-sided, with sacreBLEU's resamples
(seeded by SACREBLEU_SEED, 12345 if unset).  With the difference d of two systems on the set, and
d_b on B resamples,

    p = (1 + #{|d_b - mean d_b| >= |d|}) / (B + 1)

and the 95% interval is d -+ q with the largest q at which p is above 0.05: it excludes 0 where p is
at most 0.05, and nowhere else.

sacreBLEU's own p uses ``|d_b| - mean |d_b|`` instead: without a true difference it is below 0.05 in
more than 10% of all comparisons.  A small p says that these two models differ, not that their
methods do.

Over seeds, two methods are trained with equal seeds, with gains
g_s = score(system, s) - score(baseline, s) and mean g over S seeds:

    t-interval   g -+ t(S - 1) sd(g_s) / sqrt(S)    other seeds, same test set

Each row of a table uses the standard deviation of its own gains.  A simulation shows what goes
wrong otherwise; it has 3 and 5 seeds, and standard deviations (0.003 to 0.11 bits) and correlations
by seed (0 to 0.92) like the runs of ``results/``:

    method                                coverage of rows  Holm's familywise error
    paired, each row's own sd             0.947 to 0.955    at most 0.05
    paired, one sd pooled over rows       0.48 to 1.00      up to 0.36
    paired, moderated (Smyth 2004)        0.81 to 0.99      up to 0.11
    unpaired, Welch                       0.946 to 1.00     up to 0.06; wider for equal starts
    unpaired, one sd pooled over rows     0.68 to 1.00      up to 0.18

Several tests on one page are corrected by Holm's step-down procedure (Holm 1979, "A simple
sequentially rejective multiple test procedure").
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import CHRF
from scipy import special

from collab_lab.metrics.marks import check_ordinary
from collab_lab.metrics.translation_scores import bleu_metric, check_words

METRICS = ("BLEU", "chrF")
#: Resamples of the bootstrap, as in sacreBLEU.
SAMPLES = 1000

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """The result for one metric (0 to 100); ``ci`` is half the width of a 95% interval."""

    metric: str
    baseline: float
    baseline_ci: float
    system: float
    system_ci: float
    difference: float
    low: float
    high: float
    p: float
    signature: str


def paired(
    baseline: list[str], system: list[str], references: list[str], of_tokens: bool = False
) -> list[Result]:
    """Test a system against the baseline: one result per metric.

    Args:
        of_tokens: whether the texts are tokenised: see :func:`.translation_scores.score`.

    Raises:
        UserError: the reference has no words, or the texts are not ordinary text: see
            :func:`.check_ordinary`.
    """
    check_words(references)
    for hypotheses in (baseline, system):
        check_ordinary(hypotheses, references, of_tokens)
    seed = os.environ.get("SACREBLEU_SEED", "12345").lower()
    least, results = least_p(baseline, system), []
    metrics: list[Any] = [
        CHRF(references=[references])
        if name == "chrF"
        else bleu_metric(references, of_tokens, references=[references])
        for name in METRICS
    ]
    # What a score is computed of, to be summed: (sentences, counts) each.
    counts = [
        [np.array(metric._extract_corpus_statistics(text, None), float)
         for text in (baseline, system)]
        for metric in metrics
    ]  # fmt: skip
    sums = resampled([*chain(*counts)], None if seed == "none" else int(seed))
    for number, (name, metric) in enumerate(zip(METRICS, metrics, strict=True)):
        score = metric._compute_score_from_stats
        theirs, ours = (float(score(part.sum(0)).score) for part in counts[number])
        of_metric = sums[2 * number : 2 * number + 2]
        sampled = [np.array([score(row).score for row in part]) for part in of_metric]
        difference, differences = ours - theirs, sampled[1] - sampled[0]
        p = max(bootstrap_p(difference, differences), least)
        wide = half_width(differences)
        if least > 1 - CONFIDENCE:  # no difference of so few sentences is significant
            wide = max(wide, abs(difference))
        signature = metric.get_signature()
        signature.update("seed", seed)
        signature.update("bs", SAMPLES)
        half = [(end - start) / 2 for start, end in map(interval_of, sampled)]
        ends = (difference - wide, difference + wide)
        results.append(
            Result(name, theirs, half[0], ours, half[1], difference, *ends, p, str(signature))
        )
    return results


def resampled(parts: Sequence[Array], seed: int | None) -> list[Array]:
    """Sums of each part ``(sentences, counts)`` over resamples: ``(SAMPLES, counts)`` each."""
    sums = [np.empty((SAMPLES, part.shape[1])) for part in parts]
    for number, weights in enumerate(resamples(len(parts[0]), seed)):
        for total, part in zip(sums, parts, strict=True):
            total[number] = weights @ part
    return sums


def resamples(sentences: int, seed: int | None) -> Iterator[Array]:
    """Yield :data:`SAMPLES` resamples: how often each sentence is in it, ``(sentences,)``.

    They come one by one, because all of them together take 4 GB at 500,000 sentences.
    """
    generator = np.random.default_rng(seed)
    for _ in range(SAMPLES):
        yield np.bincount(generator.choice(sentences, sentences), minlength=sentences).astype(float)


def bootstrap_p(difference: float, sampled: Array) -> float:
    """The two-sided p of a difference, from the differences ``(B)`` on resamples.

    Under the null hypothesis, differences vary as the resamples do about their mean.
    """
    deviations = np.abs(sampled - sampled.mean())
    return float((1 + np.sum(deviations >= abs(difference))) / (1 + len(sampled)))


def half_width(sampled: Array) -> float:
    """Half the width of a difference's 95% interval, from the differences ``(B)`` on resamples.

    It is the largest difference whose :func:`bootstrap_p` is above 0.05.
    """
    deviations = np.sort(np.abs(sampled - sampled.mean()))[::-1]
    # The k-th largest deviation has p = (1 + k) / (1 + B).
    return float(deviations[int((1 - CONFIDENCE) * (1 + len(sampled))) - 1])


def interval_of(sampled: Array) -> tuple[float, float]:
    """The 95% percentile interval of values ``(B)`` on resamples."""
    low, high = np.quantile(sampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def different(baseline: list[str], system: list[str]) -> int:
    """The number of sentences that the two systems translate differently."""
    return sum(a != b for a, b in zip(baseline, system, strict=True))


def least_p(baseline: list[str], system: list[str]) -> float:
    """The smallest two-sided p that n differing sentences allow: 2 of their 2^n exchanges.

    The bootstrap claims more, because it only resamples the sentences at hand: if five sentences
    differ, all in one direction, its p is 0.02 to 0.04.
    """
    return min(1.0, 2.0 ** (1 - different(baseline, system)))


# ---- over seeds ---------------------------------------------------------------------------------

CONFIDENCE = 0.95
#: Standard deviation below which gains are equal.
ROUNDING = 1e-9


class Gain(NamedTuple):
    """The mean of gains over seeds.

    Attributes:
        low, high, p: t-interval, of 95% unless another was asked for, and p of a two-sided t-test
            of the mean against 0; None if the gains do not vary.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


class Spread(NamedTuple):
    """A standard deviation of gains over seeds, and its degrees of freedom."""

    sd: float
    freedom: int


def pooled(kinds: Iterable[Sequence[float]]) -> Spread:
    """The standard deviation of gains of several kinds, each about the mean of its kind.

    It has ``sum (seeds - 1)`` degrees of freedom, and assumes that only the means of kinds differ.
    """
    deviations = [np.asarray(gains) - np.mean(gains) for gains in kinds]
    freedom = sum(len(one) - 1 for one in deviations)
    squares = sum(float(np.sum(one**2)) for one in deviations)
    return Spread(float(np.sqrt(squares / freedom)) if freedom else 0.0, freedom)


def gain_of(
    gains: Sequence[float], spread: Spread | None = None, confidence: float = CONFIDENCE
) -> Gain:
    """The mean of gains with its t-interval and t-test.

    Args:
        spread: standard deviation to assume; default: that of these gains.
        confidence: of the interval; 0.9 for two one-sided tests, at 5%, of a gain within a margin.
    """
    mean, (sd, freedom) = float(np.mean(gains)), spread or pooled([gains])
    if sd < ROUNDING:
        return Gain(mean)
    error = sd / np.sqrt(len(gains))
    half = error * special.stdtrit(freedom, (1 + confidence) / 2)
    p = 2 * special.stdtr(freedom, -abs(mean) / error)
    return Gain(mean, float(mean - half), float(mean + half), float(p))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """The p of m tests, corrected for their number, in the given order; None (not tested) stays.

    So does NaN, the p of numbers that are not finite.  The i-th smallest p becomes ``max over j <=
    i of (m - j + 1) p_j``, at most 1.
    """
    known = ((value, index) for index, value in enumerate(p) if value is not None)
    tested = sorted((value, index) for value, index in known if not math.isnan(value))
    corrected, largest = [*p], 0.0
    for rank, (value, index) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * value))
        corrected[index] = largest
    return corrected
