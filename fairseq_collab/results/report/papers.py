"""What papers gain against their own baselines, beside what our rows gain against ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fairseq_collab.results.published import PAPERS, Claim, Paper, Side
from fairseq_collab.results.report.matrix import DIGITS, difference

Row = dict[str, Any]
#: Methods of the authors' own code, which are compared with each other alone.
_FAMILIES = ("", "fork_")


def beside(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every paper with its claims and our counterparts, which may be none.

    Returns:
        a paper: ``title``, ``caution``, ``claims``; a claim: what is printed, ``difference``,
        ``size_ratio``, and ``ours``: row, baseline, mean difference in BLEU over shared seeds, and
        ratio of parameters.
    """
    return [_paper(paper, rows) for paper in PAPERS]


def _paper(paper: Paper, rows: Sequence[Row]) -> dict[str, Any]:
    claims = [_claim(claim, rows) for claim in paper.claims]
    return {"title": paper.title, "caution": paper.caution, "claims": claims}


def _claim(claim: Claim, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "where": claim.where,
        "system": claim.system,
        "baseline": claim.baseline,
        "metric": claim.metric,
        "score": claim.score,
        "baseline_score": claim.baseline_score,
        "difference": round(claim.score - claim.baseline_score, DIGITS),
        "size_ratio": _ratio(claim.size, claim.baseline_size),
        "ours": _ours(claim, rows),
    }


def _ratio(size: float | None, baseline: float | None) -> float | None:
    return None if size is None or baseline is None else round(size / baseline, DIGITS)


def _ours(claim: Claim, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Pairs of one experiment whose seeds were trained both ways."""
    found = []
    for family in _FAMILIES:
        for row in rows:
            for baseline in rows:
                if (
                    row["experiment"] != baseline["experiment"]
                    or row is baseline
                    or not _stands_for(row, claim.ours, family)
                    or not _stands_for(baseline, claim.our_baseline, family)
                ):
                    continue
                gain = difference(baseline, row)
                if gain is not None:
                    found.append(
                        {
                            "row": row["number"],
                            "baseline": baseline["number"],
                            "difference": round(gain, DIGITS),
                            "size_ratio": _ratio(row["parameters"], baseline["parameters"]),
                        }
                    )
    return found


def _stands_for(row: Row, side: Side, family: str) -> bool:
    if row["method"] not in [family + method for method in side.methods]:
        return False
    if side.variant not in (None, row["variant"]):
        return False
    return _agrees(row["reduction"], side.reduction) and _agrees(row["head_ratio"], side.head_ratio)


def _agrees(ours: float | None, wanted: float | None) -> bool:
    return wanted is None or (ours is not None and math.isclose(ours, wanted, rel_tol=1e-4))
