"""Every two rows of a data set: difference in BLEU and paired bootstrap, seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]
#: A p below this is marked.
LEVEL = 0.05
#: Of numbers behind the point, so that no last bit of a processor shows.
DIGITS = 6


def difference(baseline: Row, row: Row) -> float | None:
    """BLEU that ``row`` has more, mean over the seeds of both; None without such seeds."""
    theirs = dict(zip(baseline["seeds"], baseline["bleu"]["values"], strict=True))
    ours = dict(zip(row["seeds"], row["bleu"]["values"], strict=True))
    gains = [ours[seed] - theirs[seed] for seed in row["seeds"] if seed in theirs]
    return statistics.fmean(gains) if gains else None


def pairs(rows: Sequence[Row], p: Callable[[int, int, int], float]) -> list[dict[str, Any]]:
    """Test every two rows, the first of them as the baseline.

    Args:
        p: of the numbers of two rows and a seed that both have: p of these two trained models.

    Returns:
        a pair: ``row``, ``against``, ``difference`` (row less against), ``seeds`` (seed, difference
        and p of each), and ``verdict``: "all" if every seed has p < 0.05 with the same sign, "some"
        if not all have, "none"; "untested" without a common seed.
    """
    found = []
    for baseline, row in combinations(rows, 2):
        theirs = dict(zip(baseline["seeds"], baseline["bleu"]["values"], strict=True))
        tested = [
            {
                "seed": seed,
                "difference": round(bleu - theirs[seed], DIGITS),
                "p": round(p(baseline["number"], row["number"], seed), DIGITS),
            }
            for seed, bleu in zip(row["seeds"], row["bleu"]["values"], strict=True)
            if seed in theirs
        ]
        gain = difference(baseline, row)
        found.append(
            {
                "row": row["number"],
                "against": baseline["number"],
                "difference": None if gain is None else round(gain, DIGITS),
                "seeds": tested,
                "verdict": verdict(tested),
            }
        )
    return found


def verdict(tested: Sequence[dict[str, Any]]) -> str:
    """How the seeds of a pair agree, see :func:`pairs`."""
    if not tested:
        return "untested"
    below = [one for one in tested if one["p"] < LEVEL]
    signs = {one["difference"] > 0 for one in tested}
    if len(below) == len(tested) and len(signs) == 1:
        return "all"
    return "some" if below else "none"
