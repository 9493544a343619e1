"""The page of ``fairseq-collab report``: what it answers, and that it needs nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import lxml.html
import pytest
from run_folders import start_run, write_run

from collab_lab.results.report import answer_of, page, sentences
from collab_lab.results.table import NO_TEST, NO_X, read_table

EVIL = "</script><b>&\"'"
#: Method: parameters, and BLEU of each seed.
MODELS = {
    "large": (100, (40.0, 41.0, 42.0)),
    "level": (60, (40.2, 40.9, 41.7)),
    "small": (30, (38.0, 39.0, 40.1)),
    "dear": (90, (37.0, 38.0, 39.0)),
}


def runs(parent: Path, *methods: str, seeds: int = 3) -> Path:
    for method in methods or MODELS:
        parameters, scores = MODELS[method]
        for seed, bleu in enumerate(scores[:seeds], 1):
            write_run(parent, method, 64, seed, bleu, parameters=parameters * 10**6)
    return parent


def test_the_answer(tmp_path: Path) -> None:
    found = answer_of(read_table([runs(tmp_path)], NO_X, NO_TEST))
    assert [one.name for one in found.models] == ["large", "level", "small", "dear"]
    assert found.cost == "parameters"
    assert [one.name for one in found.front] == ["small", "level", "large"]
    assert found.pick is not None
    assert found.pick.name == "level"
    assert found.models[2].gain.significant
    first, second, third = sentences(found)
    assert first == "Best: large (BLEU 41.00 ± 1.00, 3 seeds)."
    assert second.startswith("Cheapest without a significant loss: level, -40% parameters, -0.07")
    assert third.endswith("not significant is not equal.")


def test_models_that_do_not_translate(tmp_path: Path) -> None:
    """None of them is the best."""
    for method, bleu in (("one", 0.08), ("other", 0.07)):
        write_run(tmp_path, method, 64, bleu=bleu)
    said = sentences(answer_of(read_table([tmp_path], NO_X, NO_TEST)))
    assert said == ["No model translates: the best, one, has BLEU 0.08 (1 seed)."]


@pytest.mark.parametrize(("methods", "seeds"), [(("large", "level"), 1), (("large", "small"), 3)])
def test_no_cheaper_model(tmp_path: Path, methods: tuple[str, ...], seeds: int) -> None:
    """One seed has no interval; the other model loses significantly."""
    found = answer_of(read_table([runs(tmp_path, *methods, seeds=seeds)], NO_X, NO_TEST))
    assert found.pick is None


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    runs(tmp_path)
    evil = write_run(tmp_path, "evil", 64, 1, 20.0) / "score.json"
    evil.write_text(json.dumps(json.loads(evil.read_text()) | {"method": EVIL}))
    start_run(tmp_path, "lost", verdict="diverged", reason="loss is nan")
    text, _ = page([tmp_path])
    assert not re.search(r"https?:|url\((?!#)|@import|src=|<script", text)
    tree = lxml.html.document_fromstring(text)
    rows = [[cell.text_content() for cell in row.iter("th", "td")] for row in tree.iter("tr")]
    assert rows[1][:3] == ["1: large", "3", "41.00 ± 1.00"]
    assert rows[3][3] == "-1.97 (-2.11 to -1.82)"
    assert len(rows) == 6
    assert len(list(tree.iter("svg"))) == 1
    assert "lost: diverged (loss is nan)" in tree.text_content()
    assert EVIL in tree.text_content()
    assert text == page([tmp_path])[0]
