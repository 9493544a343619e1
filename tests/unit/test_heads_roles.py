"""Roles of heads: thresholds, and what they are thresholds of."""

from __future__ import annotations

from typing import Any

import pytest

from fairseq_collab.analysis.roles import positional, rare, roles, syntactic

HERE = ("encoder", 0, 0)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.9, 0.1, 0.0], ["positional -1"]),
        ([0.89, 0.1, 0.0], []),
        ([0.0, 0.95, 0.0], ["positional 0"]),
        ([None, 0.0, 0.9], ["positional +1"]),
        ([None, None, None], []),
    ],
)
def test_positional(shares: list[float], expected: list[str]) -> None:
    offsets = {"offsets": [-1, 0, 1], "encoder": [[shares]]}
    assert list(positional(offsets, HERE)) == expected
    assert list(positional(offsets, ("cross", 0, 0))) == []


@pytest.mark.parametrize(
    ("accuracy", "baseline", "pairs", "found"),
    [
        (0.56, 0.5, 100, True),
        (0.54, 0.5, 100, False),
        (0.45, 0.4, 100, True),  # 10 % of the baseline, not 10 points
        (0.9, 0.5, 99, False),
        (None, None, 0, False),
    ],
)
def test_syntactic(accuracy: float | None, baseline: float | None, pairs: int, found: bool) -> None:
    scores = {"pairs": pairs, "baseline": {"offset": 1, "accuracy": baseline}}
    relations = {"obj": {"head->dependent": {**scores, "encoder": [[accuracy]]}}}
    expected = ["syntactic obj head->dependent"] if found else []
    assert list(syntactic(relations, HERE)) == expected
    assert list(syntactic(relations, ("decoder", 0, 0))) == []


@pytest.mark.parametrize(
    ("share", "chance", "found"),
    [(0.51, 0.2, True), (0.5, 0.2, False), (0.7, 0.4, False), (None, None, False)],
)
def test_rare(share: float | None, chance: float | None, found: bool) -> None:
    assert list(rare({"encoder": [[share]]}, chance, HERE)) == ["rare tokens"] * found


def test_a_head_can_have_several_roles_and_every_head_is_asked() -> None:
    accuracies = {"pairs": 200, "baseline": {"offset": -1, "accuracy": 0.5},
                  "encoder": [[0.2, 0.9]]}  # fmt: skip
    found = {
        "measures": {
            # The paper saw more than 0.8 in positional heads, and does not ask for it.
            "confidence": {"encoder": [[0.9, 0.9]], "decoder": [[0.3]], "cross": [[0.9]]},
            "rare": {"encoder": [[0.9, 0.1]], "decoder": None, "cross": None},
        },
        "offsets": {"offsets": [-1, 0], "encoder": [[[0.0, 0.1], [0.95, 0.0]]],
                    "decoder": [[[1.0, 0.0]]]},
        "rare": {"chance": 0.2},
        "syntax": {"relations": {"nsubj": {"dependent->head": accuracies}}},
    }  # fmt: skip
    heads: Any = {"encoder": [2], "decoder": [1], "cross": [1]}
    assert roles(found, heads) == {
        "encoder": [[["rare tokens"], ["positional -1", "syntactic nsubj dependent->head"]]],
        "decoder": [[["positional -1"]]],
        "cross": [[[]]],
    }
    without = roles({**found, "syntax": None}, heads)
    assert without["encoder"] == [[["rare tokens"], ["positional -1"]]]
