"""Roles of heads and their thresholds."""

from __future__ import annotations

from typing import Any

import pytest

from fairseq_collab.analysis.measures import roles

NSUBJ = "syntactic nsubj dependent->head"


def found(**changed: Any) -> list[str]:
    """The roles of the one encoder head of an analysis in which it has all three."""
    given = {"shares": [0.0, 0.9], "accuracy": 0.551, "pairs": 100, "rare": 0.51, "chance": 0.25}
    values: dict[str, Any] = {**given, **changed}
    accuracies = {
        "pairs": values["pairs"],
        "baseline": {"offset": -1, "accuracy": 0.5},
        "encoder": [[values["accuracy"]]],
    }
    content = {
        "measures": {"rare": {"encoder": [[values["rare"]]], "decoder": None, "cross": None}},
        "offsets": {"offsets": [-1, 0], "encoder": [[values["shares"]]], "decoder": []},
        "rare": {"chance": values["chance"]},
        "syntax": {"relations": {"nsubj": {"dependent->head": accuracies}}},
    }
    of_heads = roles(content, {"encoder": [1], "decoder": [], "cross": [1]})
    assert of_heads["decoder"] == []
    assert of_heads["cross"] == [[[]]]
    del content["syntax"]
    without = roles(content, {"encoder": [1], "decoder": [], "cross": [1]})["encoder"][0][0]
    assert without == [name for name in of_heads["encoder"][0][0] if name != NSUBJ]
    return of_heads["encoder"][0][0]


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({}, None),
        ({"shares": [0.1, 0.89]}, "positional 0"),
        ({"shares": [None, None]}, "positional 0"),
        ({"accuracy": 0.549}, NSUBJ),  # 10 % of the baseline, not 10 points
        ({"accuracy": None}, NSUBJ),
        ({"pairs": 99}, NSUBJ),
        ({"rare": 0.5}, "rare tokens"),
        ({"rare": 0.7, "chance": 0.35}, "rare tokens"),  # no more than twice by chance
        ({"rare": None, "chance": None}, "rare tokens"),
    ],
)
def test_each_threshold(changed: dict[str, Any], lost: str | None) -> None:
    assert found(**changed) == [n for n in ("positional 0", NSUBJ, "rare tokens") if n != lost]
