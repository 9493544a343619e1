"""What was trained alike, and what is best of it: budgets and Pareto fronts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf

from fairseq_collab.results.rows import BUDGET_TOLERANCE
from fairseq_collab.runs.run import Run

Row = dict[str, Any]
#: What a Pareto front weighs BLEU against.
COSTS = ("parameters", "multiply_adds")
#: Where fairseq looks for weights, if it is not told.
_OWN_CHECKPOINT = "checkpoint_last.pt"


def fine_tuned(run: Run) -> bool:
    """Whether a run has started from the weights of another, by its configuration."""
    config = run.config()
    other = OmegaConf.select(config, "checkpoint.finetune_from_model")
    restored = OmegaConf.select(config, "checkpoint.restore_file") or _OWN_CHECKPOINT
    return bool(other) or restored != _OWN_CHECKPOINT


def budgets(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows by how long they were trained, from scratch first; updates may differ by 1 %.

    Returns:
        letter, ``fine_tuned``, the ranges of ``epochs`` and ``updates``, and the numbers of rows.
    """
    found: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (row["fine_tuned"], row["updates"], row["number"])):
        first = found[-1][0] if found else None
        if (
            first is not None
            and row["fine_tuned"] == first["fine_tuned"]
            and row["updates"][1] <= first["updates"][0] * (1 + BUDGET_TOLERANCE)
        ):
            found[-1].append(row)
        else:
            found.append([row])
    return [
        {
            "letter": letter(number),
            "fine_tuned": group[0]["fine_tuned"],
            "epochs": _range(group, "epochs"),
            "updates": _range(group, "updates"),
            "rows": sorted(row["number"] for row in group),
        }
        for number, group in enumerate(found)
    ]


def _range(rows: Sequence[Row], field: str) -> list[int]:
    return [min(row[field][0] for row in rows), max(row[field][1] for row in rows)]


def letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def best(rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows with the highest BLEU."""
    highest = max(row["bleu"]["mean"] for row in rows)
    return [row["number"] for row in rows if row["bleu"]["mean"] == highest]


def front(rows: Sequence[Row], cost: str) -> list[int]:
    """The rows that no other beats, from the cheapest on.

    One row beats another if it costs as little or less and has as much BLEU or more, and is not
    equal in both.
    """
    points = [(row[cost], -row["bleu"]["mean"], row["number"]) for row in rows]
    kept = [
        point
        for point in points
        if not any(
            other[0] <= point[0] and other[1] <= point[1] and other[:2] != point[:2]
            for other in points
        )
    ]
    return [number for *_, number in sorted(kept)]
