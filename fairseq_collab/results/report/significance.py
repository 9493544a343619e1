"""Is a row's distance to the best one chance?  sacreBLEU's paired bootstrap (Koehn 2004).

All runs of one budget and one seed are tested in one call against the best row's run, on the
same 1,000 draws of sentences; the same call gives every run's interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.significance import PairedTest

from fairseq_collab.metrics.significance import METRICS, least_p, seed
from fairseq_collab.results.against import SAMPLES
from fairseq_collab.runs.translations import System

#: A p below this is marked.
LEVEL = 0.05
#: Of numbers behind the point, so that no last bit of a processor shows.
DIGITS = 6
Row = dict[str, Any]


@dataclass(frozen=True)
class Tested:
    """A run: half of its 95 % interval by metric, and p of its BLEU against the baseline's."""

    half: dict[str, float]
    p: float


def test(systems: Sequence[System]) -> list[Tested]:
    """Test every system against the first one, which has p = 1.

    Raises:
        UserError: SACREBLEU_SEED is not a seed.
    """
    seed()
    signatures, found = PairedTest(
        [(str(number), system.hypotheses) for number, system in enumerate(systems)],
        {name: kind() for name, kind in METRICS.items()},
        [systems[0].references],
        test_type="bs",
        n_samples=SAMPLES,
    )()
    scores: list[Any] = [found[name] for name in signatures]  # sacreBLEU's names, our order
    return [
        Tested(
            {name: float(of[number].ci) for name, of in zip(METRICS, scores, strict=True)},
            max(scores[0][number].p_value, least_p(systems[0].hypotheses, system.hypotheses))
            if number
            else 1.0,
        )
        for number, system in enumerate(systems)
    ]


def against_best(
    budget: dict[str, Any], rows: Iterable[Row], systems: Mapping[tuple[int, int], System]
) -> list[dict[str, Any]]:
    """Test the rows of a budget against its best one, and give all of them their intervals.

    Args:
        rows: their scores get ``low`` and ``high``: the mean of the seeds, less and plus the mean
            of half the seeds' intervals (a little more than half of the interval of the mean)
        systems: the translations, by number of row and seed

    Returns:
        for every row but the best: ``row``, ``against``, ``difference`` (row less against; None
        without a common seed), ``seeds`` (seed, difference and p of each) and :func:`verdict`
    """
    chosen = {row["number"]: row for row in rows if row["number"] in budget["rows"]}
    best = chosen[budget["best"][0]]
    runs: dict[int, dict[int, Tested]] = {number: {} for number in chosen}
    for of in sorted({of for row in chosen.values() for of in row["seeds"]}):
        numbers = [number for number, row in chosen.items() if of in row["seeds"]]
        numbers.sort(key=lambda number: number != best["number"])
        tested = test([systems[number, of] for number in numbers])
        for number, one in zip(numbers, tested, strict=True):
            runs[number][of] = one
    pairs = []
    for number, row in chosen.items():
        for name in METRICS:
            score = row[name.lower()]
            half = statistics.fmean(one.half[name] for one in runs[number].values())
            score["low"] = round(score["mean"] - half, DIGITS)
            score["high"] = round(score["mean"] + half, DIGITS)
        seeds = [
            {"seed": of, "difference": gain, "p": round(runs[number][of].p, DIGITS)}
            for of, gain in _gains(best, row).items()
        ]
        pair = {"row": number, "against": best["number"], "difference": difference(best, row)}
        if row is not best:
            pairs.append({**pair, "seeds": seeds, "verdict": verdict(seeds)})
    return pairs


def difference(baseline: Row, row: Row) -> float | None:
    """BLEU that ``row`` has more, mean over the seeds of both; None without such seeds."""
    gains = _gains(baseline, row).values()
    return round(statistics.fmean(gains), DIGITS) if gains else None


def _gains(baseline: Row, row: Row) -> dict[int, float]:
    """BLEU that ``row`` has more with each seed of both."""
    theirs = dict(zip(baseline["seeds"], baseline["bleu"]["values"], strict=True))
    ours = zip(row["seeds"], row["bleu"]["values"], strict=True)
    return {of: round(bleu - theirs[of], DIGITS) for of, bleu in ours if of in theirs}


def verdict(tested: Sequence[dict[str, Any]]) -> str:
    """How the seeds agree: "all" have p < 0.05 with one sign, "some", "none", or "untested"."""
    if not tested:
        return "untested"
    below = [one for one in tested if one["p"] < LEVEL]
    signs = {one["difference"] > 0 for one in tested}
    if len(below) == len(tested) and len(signs) == 1:
        return "all"
    return "some" if below else "none"
