"""What was trained alike, and what is best of it: budgets and Pareto fronts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from fairseq_collab.results.rows import BUDGET_TOLERANCE
from fairseq_collab.runs.run import Run, started_from

Row = dict[str, Any]
#: What a Pareto front weighs BLEU against.
COSTS = ("parameters", "multiply_adds")


def fine_tuned(run: Run) -> bool:
    """Whether a run has started from the weights of another, by its configuration."""
    return bool(started_from(run.config()))


def budgets(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows by how long they were trained, from scratch first; updates may differ by 1 %.

    What fine-tuned rows started from may differ in training, too: they are compared only within
    one folder, the first part of their experiment's name.

    Returns:
        letter, ``fine_tuned``, ``folder`` (None from scratch), the ranges of ``epochs`` and
        ``updates``, the numbers of rows, of the ``best`` and of the ``fronts`` (of the costs that
        all rows have)
    """
    found: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (*_start(row), row["updates"], row["number"])):
        first = found[-1][0] if found else row
        alike = row["updates"][1] <= first["updates"][0] * (1 + BUDGET_TOLERANCE)
        if found and alike and _start(row) == _start(first):
            found[-1].append(row)
        else:
            found.append([row])
    return [
        {
            "letter": letter(number),
            "fine_tuned": group[0]["fine_tuned"],
            "folder": _start(group[0])[1] or None,
            "epochs": _range(group, "epochs"),
            "updates": _range(group, "updates"),
            "rows": sorted(row["number"] for row in group),
            "best": best(group),
            "fronts": {
                cost: front(group, cost)
                for cost in COSTS
                if all(row[cost] is not None for row in group)
            },
        }
        for number, group in enumerate(found)
    ]


def _start(row: Row) -> tuple[bool, str]:
    """Whether a row is fine-tuned, and if so, the folder of its experiment."""
    return row["fine_tuned"], row["experiment"].partition("/")[0] if row["fine_tuned"] else ""


def _range(rows: Sequence[Row], field: str) -> list[int]:
    return [min(row[field][0] for row in rows), max(row[field][1] for row in rows)]


def letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    more, rest = divmod(number, 26)
    return (letter(more - 1) if more else "") + chr(ord("A") + rest)


def best(rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows with the highest BLEU."""
    highest = max(row["bleu"]["mean"] for row in rows)
    return [row["number"] for row in rows if row["bleu"]["mean"] == highest]


def front(rows: Iterable[Row], cost: str) -> list[int]:
    """The rows that no other beats, from the cheapest on.

    One row beats another if it costs as little or less and has as much BLEU or more, and is not
    equal in both.
    """
    points = ((row[cost], -row["bleu"]["mean"], row["number"]) for row in rows)
    return [number for *_, number in unbeaten(points)]


def unbeaten(points: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Of ``(cost, loss, ...)`` those that no other beats in both, the cheapest first."""
    found: list[tuple[Any, ...]] = []
    least = float("inf")
    for (_, loss), equal in groupby(sorted(points), key=lambda point: point[:2]):
        if loss < least:
            found += equal
            least = loss
    return found
