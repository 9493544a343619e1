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


def test_the_page_shows_all_parts_and_each_figure_exists(tmp_path: Path) -> None:
    page.write(FULL, tmp_path)
    text = (tmp_path / page.NAME).read_text()
    shown = re.findall(r"!\[.*\]\((.*)\)", text)
    assert sorted(shown) == sorted(path.name for path in tmp_path.glob("*.png"))
    assert len(shown) == 4
    assert re.search(r"layer 0, head 0 +\| positional -1 .*\| +0.013 \|", text)
    row = re.search(r"\| nsubj dependent->head .*", text)
    assert row
    assert row[0].replace(" ", "").split("|")[2:7] == ["1,234", "0.1", "0.50", "0.40", "+1"]
    assert "obj" not in text  # it has no pairs


def test_parts_that_are_missing_are_left_out(tmp_path: Path) -> None:
    page.write(EMPTY, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [page.NAME]
