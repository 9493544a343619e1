"""The page and the figures of an analysis of heads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from collab_lab.results import heads_page as page

#: An analysis that has found little.
EMPTY: dict[str, Any] = {
    "version": 1, "checkpoint": "average.pt", "arch": "transformer", "data": "toy",
    "subset": "valid", "sentences": 1014, "commit": "c0ffee", "date": "2026-11-21",
    "command": "fairseq-collab heads average.pt toy --out heads",
    "hardware": "some processor", "versions": {"torch": "2.13.0"}, "stages": {},
    "heads": {"encoder": [2, 1], "decoder": [1], "cross": [2]}, "measures": {},
    "roles": {"encoder": [[[], []], [[]]], "decoder": [[[]]], "cross": [[[], []]]},
}  # fmt: skip
PAIRS = {"pairs": 1234, "baseline": {"offset": 1, "accuracy": 0.4}}
FULL: dict[str, Any] = {
    **EMPTY,
    "stages": {"syntax": {"trees": "trees.conllu"}, "price": {"sentences": 1000}},
    "measures": {
        "confidence": {"encoder": [[0.5, 0.125], [None]], "decoder": [[1]], "cross": None},
        "rare": {"encoder": [[0.25, 0.75], [0.5]]},
        "price": {"encoder": [[0.0125, 0.5], [1.5]], "decoder": [[1]], "cross": [[0.5, 0.5]]},
        "relevance": {"encoder": [[-0.5, 0.5], [1]], "decoder": [[1]], "cross": [[0.5, 0.5]]},
    },
    "relevance": {"sentences": 7, "lost": 0},
    "rare": {"sentences": 900, "chance": 0.11},
    "syntax": {
        "sentences": 50, "too_long": 2,
        "relations": {
            "nsubj": {"dependent->head": {**PAIRS, "encoder": [[0.3, 0.5], [0.2]]}},
            "obj": {"dependent->head": {"pairs": 0, "baseline": None,
                                        "encoder": [[None, None], [None]]}},
        },
    },
    "roles": {
        "encoder": [[["positional -1"], ["syntactic nsubj dependent->head"]],
                    [["rare tokens", "positional +1"]]],
        "decoder": [[[]]], "cross": [[[], []]],
    },
}  # fmt: skip


def test_the_page_has_a_row_for_each_head_and_one_figure(tmp_path: Path) -> None:
    page.write_page(FULL, tmp_path)
    text = (tmp_path / page.NAME).read_text()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {page.NAME, page.FIGURE, "heads.pdf"}
    assert re.findall(r"!\[.*\]\((.*)\)", text) == [page.FIGURE]
    rows = [row.split() for row in re.findall(r"^\| ((?:encoder|decoder|cross) .*)", text, re.M)]
    assert [row[:2] for row in rows][:2] == [["encoder", "0.0"], ["encoder", "0.1"]], "by price"
    assert len(rows) == 6
    assert rows[0][3] == "0.0125"
    assert rows[0][-3:-1] == ["positional", "-1"]
    row = re.search(r"\| nsubj dependent->head .*", text)
    assert row
    assert row[0].replace(" ", "").split("|")[2:7] == ["1,234", "0.1", "0.50", "0.40", "+1"]
    assert "obj" not in text  # it has no pairs


def test_the_title_names_unit_and_model() -> None:
    title = page.figure(FULL).get_suptitle()
    assert all(words in title for words in ("bits per target token", "average.pt", "toy"))


def test_what_a_head_does() -> None:
    """Its role, or its highest measure; nothing where none applies."""
    places = (("encoder", 0, 1), ("encoder", 1, 0), ("decoder", 0, 0), ("cross", 0, 0))
    found = [page.does(FULL, *place) for place in places]
    assert found == ["nsubj", "rare tokens", "confidence 1.00", ""]


def test_parts_that_are_missing_are_left_out(tmp_path: Path) -> None:
    page.write_page(EMPTY, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [page.NAME]
