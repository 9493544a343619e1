"""Pairs that go for their length: the rules of clean-corpus-n.perl."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from refusals import refusing

from data_prep.clean_pairs import LONGEST_WORD, clean_pairs, reason_to_drop

Pair = Callable[[bytes, bytes], tuple[Path, Path]]


def outputs(folder: Path) -> tuple[Path, Path]:
    return folder / "clean.en", folder / "clean.de"


def words(number: int) -> list[str]:
    return ["x"] * number


#: Words of each side by the reason, for 2 to 9 words and a ratio of 1.5; the first that applies.
RULES = {
    "": [(4, 4), (4, 6), (6, 4), (9, 9), (2, 2)],  # exactly the ratio, too
    "ratio": [(4, 7), (7, 4)],
    "too_long": [(10, 9), (9, 10), (10, 1)],
    "too_short": [(1, 2), (2, 1), (1, 9)],
    "empty": [(0, 2), (2, 0), (0, 0)],
}


@pytest.mark.parametrize("reason", RULES)
def test_rules(reason: str) -> None:
    limits = {"ratio": 1.5, "shortest": 2, "longest": 9}
    for source, target in RULES[reason]:
        assert reason_to_drop(words(source), words(target), **limits) == reason


def test_long_words() -> None:
    rule = partial(reason_to_drop, ratio=9, shortest=1, longest=9)
    assert rule(["x" * LONGEST_WORD], ["y"]) == ""
    assert rule(["x" * (LONGEST_WORD + 1)], ["y"]) == "long_word"
    assert rule(["y"], ["é" * (LONGEST_WORD + 1)]) == "long_word"


def test_counts_and_texts(pair: Pair, tmp_path: Path) -> None:
    source = "a b c\n \u00a0\na\n" + "a " * 8 + "\na b c d\nä\u3000 ö"
    target = "x y z\nx\nx y\nx\nx\n u v\x0b w\n"
    sources, out = pair(source.encode(), target.encode()), outputs(tmp_path)
    counts = clean_pairs(sources, out, ratio=3, shortest=1, longest=7)
    expected = {"read": 6, "kept": 3, "empty": 1, "too_long": 1, "too_short": 0, "ratio": 1}
    assert counts == {**expected, "long_word": 0, "tokens": 14}
    assert out[0].read_text() == "a b c\na\nä ö\n"
    assert out[1].read_text() == "x y z\nx y\nu v w\n"


@pytest.mark.parametrize("longer", [0, 1])
def test_unequal_lengths(longer: int, pair: Pair, tmp_path: Path) -> None:
    sides = [b"1 .\n2 ?\n", b"1 .\n2 ?\n"]
    sides[longer] += b"3 !\n"
    sources = pair(sides[0], sides[1])
    with refusing(str(sources[0])):
        clean_pairs(sources, outputs(tmp_path), ratio=9, shortest=1, longest=9)
