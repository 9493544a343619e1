"""Pairs that go for their length: the rules of clean-corpus-n.perl."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from collab_common.errors import UserError
from data_prep.clean_pairs import LONGEST_WORD, Rules, clean_pairs

Pair = Callable[[bytes, bytes], tuple[Path, Path]]


def outputs(folder: Path) -> tuple[Path, Path]:
    return folder / "clean.en", folder / "clean.de"


def words(number: int) -> list[str]:
    return ["x"] * number


# words of each side, the reason; for 2 to 9 words and a ratio of 1.5
@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (4, 4, ""),
        (4, 6, ""),  # exactly the ratio
        (6, 4, ""),
        (4, 7, "ratio"),
        (7, 4, "ratio"),
        (9, 9, ""),
        (10, 9, "too_long"),
        (9, 10, "too_long"),
        (2, 2, ""),
        (1, 2, "too_short"),
        (2, 1, "too_short"),
        (0, 2, "empty"),
        (2, 0, "empty"),
        (0, 0, "empty"),
        (10, 1, "too_long"),  # the first that applies
        (1, 9, "too_short"),
    ],
)
def test_rules(source: int, target: int, reason: str) -> None:
    assert Rules(1.5, 2, 9).reason(words(source), words(target)) == reason


def test_long_words() -> None:
    rules = Rules(9, 1, 9)
    assert rules.reason(["x" * LONGEST_WORD], ["y"]) == ""
    assert rules.reason(["x" * (LONGEST_WORD + 1)], ["y"]) == "long_word"
    assert rules.reason(["y"], ["é" * (LONGEST_WORD + 1)]) == "long_word"
    factored = Rules(9, 1, 9, factors=True)
    assert factored.reason(["x" * LONGEST_WORD + "|" + "x" * LONGEST_WORD], ["y"]) == ""


def test_counts_and_texts(pair: Pair, tmp_path: Path) -> None:
    source = "a b c\n \u00a0\na\n" + "a " * 8 + "\na b c d\nä\u3000 ö \n"
    target = "x y z\nx\nx y\nx\nx\n u\x1cv\x0b w\n"  # \x1c is no white space for Perl
    sources = pair(source.encode(), target.encode())
    counts = clean_pairs(sources, outputs(tmp_path), ratio=3, shortest=1, longest=7)
    expected = {"read": 6, "kept": 3, "empty": 1, "too_long": 1, "too_short": 0, "ratio": 1}
    assert counts == {**expected, "long_word": 0}
    assert outputs(tmp_path)[0].read_text() == "a b c\na\nä ö\n"
    assert outputs(tmp_path)[1].read_text() == "x y z\nx y\nu\x1cv w\n"


def test_vertical_bars_go(pair: Pair, tmp_path: Path) -> None:
    sources = pair(b"a b\n| |a| b\n|\n", b"x y\nx\nx\n")
    counts = clean_pairs(sources, outputs(tmp_path), ratio=9, shortest=1, longest=9)
    assert counts["empty"] == 1
    assert outputs(tmp_path)[0].read_text() == "a b\na b\n"


def test_unless_the_first_pair_has_one(pair: Pair, tmp_path: Path) -> None:
    """Then the text has factors: surface|lemma."""
    sources = pair(b"a b\nc|C d\n", b"x|X y\nz|Z w\n")
    clean_pairs(sources, outputs(tmp_path), ratio=9, shortest=1, longest=9)
    assert outputs(tmp_path)[0].read_text() == "a b\nc|C d\n"


def test_jobs_do_not_matter(pair: Pair, tmp_path: Path) -> None:
    rng = random.Random(3)
    sides = ["".join("w " * rng.randint(0, 12) + "\n" for _ in range(60_000)) for _ in range(2)]
    sources = pair(sides[0].encode(), sides[1].encode())
    clean = partial(clean_pairs, sources, outputs(tmp_path), ratio=1.5, shortest=1, longest=10)
    expected = clean()
    texts = [path.read_bytes() for path in outputs(tmp_path)]
    assert sum(expected.values()) == 2 * expected["read"] == 120_000
    assert [text.count(b"\n") for text in texts] == [expected["kept"]] * 2
    assert clean(jobs=2) == expected
    assert [path.read_bytes() for path in outputs(tmp_path)] == texts


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("longer", [0, 1])
def test_unequal_lengths(longer: int, jobs: int, pair: Pair, tmp_path: Path) -> None:
    sides = [b"1 .\n2 ?\n", b"1 .\n2 ?\n"]
    sides[longer] += b"3 !\n"
    sources = pair(sides[0], sides[1])
    with pytest.raises(UserError) as refused:
        clean_pairs(sources, outputs(tmp_path), ratio=9, shortest=1, longest=9, jobs=jobs)
    what = str(refused.value)
    assert what.startswith(f"{sources[longer]}:3: unequal line counts: {sources[0]} has ")
    assert what.endswith("find the lines that one side lacks; nothing can be paired until then")


def test_last_newline_missing(pair: Pair, tmp_path: Path) -> None:
    sources = pair(b"a\nb", b"x\ny\n")
    assert clean_pairs(sources, outputs(tmp_path), ratio=9, shortest=1, longest=9)["kept"] == 2
    assert outputs(tmp_path)[0].read_bytes() == b"a\nb\n"


def test_the_input_is_not_overwritten(pair: Pair) -> None:
    sources = pair(b"a\n", b"x\n")
    with pytest.raises(UserError, match=r"a\.de: is read and written"):
        clean_pairs(
            sources, (sources[0].with_name("out"), sources[1]), ratio=9, shortest=1, longest=9
        )
    assert sources[1].read_bytes() == b"x\n"
