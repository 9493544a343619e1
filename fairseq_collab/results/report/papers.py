"""What papers gain against their own baselines, beside what our rows gain against ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Any

from fairseq_collab.results.published import PAPERS, Claim, Side
from fairseq_collab.results.report.significance import DIGITS, difference

Row = dict[str, Any]
PRINTED = ("where", "system", "baseline", "metric", "score", "baseline_score")
#: Methods of the authors' own code, which are compared with each other alone.
_FAMILIES = ("", "fork_")


def beside(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every paper with its claims and our counterparts, which may be none.

    Returns:
        a paper: ``title``, ``caution``, ``claims``; a claim: what is printed, ``difference``,
        ``size_ratio``, and ``ours``: row, baseline, mean difference in BLEU over shared seeds, and
        ratio of parameters.
    """
    return [
        {
            "title": paper.title,
            "caution": paper.caution,
            "claims": [
                {
                    **{field: getattr(claim, field) for field in PRINTED},
                    "difference": round(claim.score - claim.baseline_score, DIGITS),
                    "size_ratio": _ratio(claim.size, claim.baseline_size),
                    "ours": _ours(claim, rows),
                }
                for claim in paper.claims
            ],
        }
        for paper in PAPERS
    ]


def _ratio(size: float | None, baseline: float | None) -> float | None:
    return None if size is None or baseline is None else round(size / baseline, DIGITS)


def _ours(claim: Claim, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Pairs of one experiment whose seeds were trained both ways."""
    return [
        {
            "row": row["number"],
            "baseline": baseline["number"],
            "difference": gain,
            "size_ratio": _ratio(row["parameters"], baseline["parameters"]),
        }
        for family in _FAMILIES
        for row, baseline in permutations(rows, 2)
        if row["experiment"] == baseline["experiment"]
        and _stands_for(row, claim.ours, family)
        and _stands_for(baseline, claim.our_baseline, family)
        and (gain := difference(baseline, row)) is not None
    ]


def _stands_for(row: Row, side: Side, family: str) -> bool:
    pairs = (row["reduction"], side.reduction), (row["head_ratio"], side.head_ratio)
    return (
        row["method"] in [family + method for method in side.methods]
        and side.variant in (None, row["variant"])
        and all(
            wanted is None or (ours is not None and math.isclose(ours, wanted, rel_tol=1e-4))
            for ours, wanted in pairs
        )
    )
