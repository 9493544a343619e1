"""``results/cuts.py``, tiny, through the tables of its page."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import toy_checkpoints
from commands import REPOSITORY

from collab_lab.results import tables


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, with few rows."""
    spec = importlib.util.spec_from_file_location("cuts", REPOSITORY / "results" / "cuts.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PARAMETERS", (0.8, 0.01))  # the second is impossible
    monkeypatch.setattr(module, "HEADS", (1 / 2,))
    return module


@pytest.mark.slow
def test_the_program_makes_the_pages_data(
    cuts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt", encoder_layers=1, decoder_layers=1)
    data = toy_checkpoints.COPY
    words = [str(tmp_path / "shrink.json"), "--data", str(data), "--sentences=20"]
    words += ["--model", f"toy={checkpoint}"]
    assert cuts.main(words) == 0
    content = json.loads((tmp_path / "shrink.json").read_text())
    assert "cannot have parameters=0.01" in capsys.readouterr().out
    assert {row["share"] for row in content["rows"]} >= {0.8, 0.125, 0.66, 0.5}
    assert all(
        {"price", "rise", "lost", "lost_test", "commit"} <= {*row} for row in content["rows"]
    )
    assert content["models"][0]["parameters"] > 0
    cuts.main(words)
    assert json.loads((tmp_path / "shrink.json").read_text()) == content, "nothing is made twice"
    monkeypatch.setattr(tables, "load", lambda name: content)
    text = tables.TABLES["shrunk"]() + tables.TABLES["shrunk_together"]()
    assert "heads and units" in text
    assert "equal shares a layer" in text
