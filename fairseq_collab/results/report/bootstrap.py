"""Scores of resampled test sets: intervals of rows, and paired tests of every two rows.

Of N sentences, N are drawn with replacement, 1,000 times (Koehn 2004), by sacreBLEU's generator and
seed: every run of a test set is scored on the same draws.  So the scores are computed once a run,
and the test of any two runs is the difference of two lists; its p is the one that
``fairseq-collab compare`` and ``table --against`` give.

    interval of a row   of the mean over its seeds: per draw the mean of the seeds' scores; 2.5 % of
                        the draws lie below it, and as many above
    p of two runs       (1 + draws with |d| - mean |d| above the difference) / (1 + draws), where d
                        is the difference on a draw; at least 2 / 2^(sentences that differ)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_collab.metrics.significance import METRICS, least_p, seed
from fairseq_collab.results.against import SAMPLES
from fairseq_collab.runs.translations import System

Scores = NDArray[np.float64]
#: sacreBLEU leaves one draw of 40 out at either end.
TAIL = 40


@dataclass(frozen=True)
class Resampled:
    """The score of one metric (0 to 100) on the test set, and on each draw: (draws,)."""

    score: float
    draws: Scores


@dataclass(frozen=True)
class Interval:
    """The mean of a row's seeds, and the 95 % interval of it under other draws of sentences."""

    mean: float
    low: float
    high: float


def draws(sentences: int, samples: int = SAMPLES) -> NDArray[np.float64]:
    """How often each sentence is in each draw: (samples, sentences), the same in every call.

    Raises:
        UserError: SACREBLEU_SEED is not a seed.
    """
    chosen = np.random.default_rng(seed()).choice(sentences, size=(samples, sentences))
    counts = [np.bincount(draw, minlength=sentences) for draw in chosen]
    return np.array(counts, dtype=np.float64)


def resample(system: System, drawn: NDArray[np.float64]) -> dict[str, Resampled]:
    """The scores of a run on the test set and on ``drawn``, by the names of ``METRICS``."""
    found = {}
    for name, kind in METRICS.items():
        metric: Any = kind()
        # The sums that a score is made of, sentence by sentence: (sentences, statistics).
        statistics = metric._extract_corpus_statistics(system.hypotheses, [system.references])
        whole = metric._aggregate_and_compute(statistics).score
        # Whole numbers, exact in double precision; sacreBLEU divides them in single precision.
        sums = (drawn @ np.array(statistics, dtype=np.float64)).astype(np.float32)
        scores = [metric._compute_score_from_stats(line).score for line in sums]
        found[name] = Resampled(float(whole), np.array(scores, dtype=np.float64))
    return found


def interval(seeds: Sequence[Resampled]) -> Interval:
    """The mean over seeds with its interval, all seeds on the same draws of sentences."""
    means = np.sort(np.mean([one.draws for one in seeds], axis=0))
    left_out = len(means) // TAIL
    mean = float(np.mean([one.score for one in seeds]))
    return Interval(mean, float(means[left_out]), float(means[-1 - left_out]))


def p_value(baseline: Resampled, system: Resampled, least: float) -> float:
    """Two-sided p of the difference of two runs, not below ``least`` (:func:`least_p`)."""
    gains = np.abs(system.draws - baseline.draws)
    beyond = gains - gains.mean() > abs(system.score - baseline.score)
    return max(float((beyond.sum() + 1) / (len(gains) + 1)), least)


@dataclass(frozen=True)
class Scored:
    """A run's translations and their resampled scores."""

    system: System
    scores: dict[str, Resampled]


def paired_p(baseline: Scored, ours: Scored) -> float:
    """p of the BLEU of two runs, as ``fairseq-collab compare`` gives it."""
    least = least_p(baseline.system.hypotheses, ours.system.hypotheses)
    return p_value(baseline.scores["BLEU"], ours.scores["BLEU"], least)
