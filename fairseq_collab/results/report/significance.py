"""Is a row's distance to the best one chance?  sacreBLEU's paired bootstrap (Koehn 2004).

All runs of one budget and one seed are tested in one call against the best row's run, on the
same 1,000 draws of sentences; the same call gives every run's interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairseq_collab.metrics.significance import METRICS, Result, paired
from fairseq_collab.results.against import SAMPLES
from fairseq_collab.runs.translations import System

#: A p below this is marked.
LEVEL = 0.05
#: Of numbers behind the point, so that no last bit of a processor shows.
DIGITS = 6
Row = Mapping[str, Any]


def against_best(
    budget: Row, rows: Iterable[Row], systems: Mapping[tuple[int, int], System]
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
    # Of each row, by seed: a result a metric.
    runs: dict[int, dict[int, list[Result]]] = {number: {} for number in chosen}
    for seed in sorted({seed for row in chosen.values() for seed in row["seeds"]}):
        numbers = [number for number, row in chosen.items() if seed in row["seeds"]]
        numbers.sort(key=lambda number: number != best["number"])
        texts = [systems[number, seed].hypotheses for number in numbers]
        references = systems[numbers[0], seed].references
        found = paired(texts, references, "bootstrap", SAMPLES)
        for number, results in zip(numbers, found, strict=True):
            runs[number][seed] = results
    pairs = []
    for number, row in chosen.items():
        for place, name in enumerate(METRICS):
            score = row[name.lower()]
            half = statistics.fmean(results[place].system_ci for results in runs[number].values())
            score["low"] = round(score["mean"] - half, DIGITS)
            score["high"] = round(score["mean"] + half, DIGITS)
        seeds = [
            {"seed": seed, "difference": gain, "p": round(runs[number][seed][0].p, DIGITS)}
            for seed, gain in _gains(best, row).items()
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
    theirs, ours = (
        dict(zip(one["seeds"], one["bleu"]["values"], strict=True)) for one in (baseline, row)
    )
    return {seed: round(ours[seed] - theirs[seed], DIGITS) for seed in ours if seed in theirs}


def verdict(tested: Sequence[Row]) -> str:
    """How the seeds agree: "all" have p < 0.05 with one sign, "some", "none", or "untested"."""
    if not tested:
        return "untested"
    below = [one for one in tested if one["p"] < LEVEL]
    signs = {one["difference"] > 0 for one in tested}
    if len(below) == len(tested) and len(signs) == 1:
        return "all"
    return "some" if below else "none"
