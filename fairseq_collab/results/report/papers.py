"""What papers gain against their own baselines, beside what our rows gain against ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from fairseq_collab.results.published import PAPERS
from fairseq_collab.results.report.significance import DIGITS, difference

Row = Mapping[str, Any]
PRINTED = ("where", "system", "baseline", "metric", "score", "baseline_score")


def beside(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every paper with its claims and our counterparts, which may be none.

    Returns:
        a paper: ``title``, ``caution``, ``claims``; a claim: what is printed, ``difference``,
        ``size_ratio``, and ``ours``: row, baseline, mean difference in BLEU over shared seeds, and
        ratio of parameters.
    """
    return [{**paper, "claims": [_claim(one, rows) for one in paper["claims"]]} for paper in PAPERS]


def _claim(claim: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    return {
        **{field: claim[field] for field in PRINTED},
        "difference": round(claim["score"] - claim["baseline_score"], DIGITS),
        "size_ratio": _ratio(claim.get("size"), claim.get("baseline_size")),
        "ours": _ours(claim, rows),
    }


def _ratio(size: float | None, baseline: float | None) -> float | None:
    return None if size is None or baseline is None else round(size / baseline, DIGITS)


def _ours(claim: Mapping[str, Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Pairs of one experiment whose seeds were trained both ways."""
    return [
        {
            "row": row["number"],
            "baseline": baseline["number"],
            "difference": gain,
            "size_ratio": _ratio(row["parameters"], baseline["parameters"]),
        }
        for family in ("", "fork_")  # the authors' own code is compared with itself alone
        for row, baseline in permutations(rows, 2)
        if row["experiment"] == baseline["experiment"]
        and _stands_for(row, claim["ours"], family)
        and _stands_for(baseline, claim["our_baseline"], family)
        and (gain := difference(baseline, row)) is not None
    ]


def _stands_for(row: Row, side: Mapping[str, Any], family: str) -> bool:
    """Whether a row has what :mod:`fairseq_collab.results.published` asks of it."""
    ratios = {field: side[field] for field in ("reduction", "head_ratio") if field in side}
    return (
        row["method"] in [family + method for method in side["methods"]]
        and side.get("variant") in (None, row["variant"])
        and all(
            row[field] is not None and math.isclose(row[field], wanted, rel_tol=1e-4)
            for field, wanted in ratios.items()
        )
    )
