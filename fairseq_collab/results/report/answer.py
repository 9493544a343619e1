"""The answer for models that were trained alike: the best, a cheaper one, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

Content = Mapping[str, Any]
#: What a cheaper model saves, as the page says it.
SAVED = {
    "heads_in_all": "heads",
    "parameters": "parameters",
    "multiply_adds": "multiply-adds",
    "key_bytes_per_target_token": "bytes of key cache",
}
#: Costs that are nearer to each other count as the same.
SAME = 0.01


def answers(section: Content) -> list[dict[str, Any]]:
    """One a budget; models trained from scratch first, then by the number of rows.

    Returns:
        budget, rows: best first
        best, as_good: the best row, and the others with the same BLEU
        cost: the field that is the figure's axis; None if all rows cost the same within 1 %
        front: rows that no other beats, the cheapest first
        far_below: rows that the figure leaves out, since they would flatten the others
        pick, kind: the cheapest row with p >= 0.05 for every seed that it shares with the best
            ("level"), else the cheapest whose BLEU is inside the interval of the best ("inside"),
            else the best of the cheaper rows ("cheaper"), else the second best ("second"), else
            None ("only")
        unsure: some cheaper row shares no seed with the best
        tests: every row against ``best``, by number
        saved: (ratio, of what) of ``pick``
        cheapest, saved_most: the cheapest of the front and what it saves, if that is neither the
            best row nor ``pick``, else None
    """
    order = sorted(section["budgets"], key=lambda one: (one["fine_tuned"], -len(one["rows"])))
    return [_answer(section, budget) for budget in order]


def _answer(section: Content, budget: Content) -> dict[str, Any]:
    known = {row["number"]: row for row in section["rows"] if row["number"] in budget["rows"]}
    rows = sorted(known.values(), key=lambda row: -row["bleu"]["mean"])
    best, *as_good = (known[number] for number in budget["best"])
    others = [row for row in rows if row is not best]
    tests = {test["row"]: test for test in section["tests"] if test["row"] in known}
    spread = {cost: sorted(row[cost] for row in rows) for cost in budget["fronts"]}
    cost = next((cost for cost, of in spread.items() if of[0] < of[-1] * (1 - SAME)), None)
    front = [known[number] for number in budget["fronts"][cost]] if cost else [best]
    lowest = min(row["bleu"]["low"] for row in front)
    floor = lowest - (best["bleu"]["high"] - lowest)
    cheaper = [row for row in others if cost and row[cost] < best[cost] * (1 - SAME)]
    by_cost = sorted(cheaper, key=lambda row: row[cost])
    candidates = {
        "level": [row for row in by_cost if tests[row["number"]]["verdict"] == "none"],
        "inside": [row for row in by_cost if row["bleu"]["mean"] >= best["bleu"]["low"]],
        "cheaper": cheaper,
        "second": others,
        "only": [None],
    }
    kind, pick = next((kind, found[0]) for kind, found in candidates.items() if found)
    cheapest = front[0] if front[0] not in (best, *as_good, pick) else None
    return {
        "budget": budget,
        "rows": rows,
        "best": best,
        "as_good": as_good,
        "cost": cost,
        "front": front,
        "far_below": [row for row in rows if row["bleu"]["mean"] < floor],
        "kind": kind,
        "pick": pick,
        "unsure": any(tests[row["number"]]["verdict"] == "untested" for row in cheaper),
        "tests": tests,
        "saved": _saved(pick, best),
        "cheapest": cheapest,
        "saved_most": _saved(cheapest, best),
    }


def _saved(pick: Content | None, best: Content) -> list[tuple[float, str]]:
    ratios = [
        (_mean(pick[field]) / _mean(best[field]), name)
        for field, name in SAVED.items()
        if pick and pick[field] and best[field]
    ]
    return [(ratio, name) for ratio, name in ratios if abs(ratio - 1) >= SAME]


def _mean(cost: float | Sequence[float]) -> float:
    """Of what differs between seeds."""
    return fmean(cost) if isinstance(cost, Sequence) else cost
