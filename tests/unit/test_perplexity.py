"""Perplexities of language models: what is read, told and refused."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_collab.metrics.perplexity import heads_of, main, without_model

COMMAND = "fairseq-eval-lm data --path {model} --gen-subset {subset} --tokens-per-sample 128"
LOG = """$ {command}
2026-11-21 12:00:00 | INFO | fairseq_cli.eval_lm | num. model params: 984,960
2026-11-21 12:00:09 | INFO | fairseq_cli.eval_lm | Evaluated 217,646 tokens in 1.4s (9 tokens/s)
2026-11-21 12:00:09 | INFO | fairseq_cli.eval_lm | Loss (base 2): 7.1234, Perplexity: {perplexity}
"""


def add(folder: Path, subset: str, perplexity: float, command: str = COMMAND) -> None:
    line = command.format(model=folder / "model.pt", subset=subset)
    (folder / f"{subset}.log").write_text(LOG.format(command=line, perplexity=perplexity))


def model(folder: Path, **options: Any) -> Path:
    """A folder as the recipe makes it."""
    folder.mkdir()
    chosen = {"decoder_layers": 2, "decoder_attention_heads": 8, **options}
    state: dict[str, Any] = {"model": {}, "optimizer_history": [], "extra_state": {}}
    state["cfg"] = {"model": chosen, "common": {"seed": 3}}
    torch.save(state, folder / "model.pt")
    (folder / "command").write_text(f"fairseq-train --arch {folder.name} ")
    add(folder, "valid", 140.25)
    add(folder, "test", 131.5)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"origin": {"corpus": "WikiText-2"}}))
    return folder


def run(*arguments: object) -> int:
    return main([*map(str, arguments), "--cpu"])


def test_a_table(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [model(tmp_path / "whole"), model(tmp_path / "small", heads_in_decoder="4,2")]
    assert run(*folders, "--data", data, "--out", tmp_path) == 0
    table = (tmp_path / "perplexity.md").read_text()
    assert table.splitlines()[2:] == [
        "| whole | 8, 8 | 984,960 | 140.25 | 131.50 |",
        "| small | 4, 2 | 984,960 | 140.25 | 131.50 |",
    ]
    assert capsys.readouterr().out == table
    content = json.loads((tmp_path / "perplexity.json").read_text())
    assert content["data"] == {"corpus": "WikiText-2"}
    assert content["measured"]["test"] == COMMAND.format(model="MODEL", subset="test")
    assert content["models"][1] == {
        "name": "small",
        "heads": [4, 2],
        "parameters": 984960,
        "perplexity": {"valid": 140.25, "test": 131.5},
        "seed": 3,
        "command": "fairseq-train --arch small",
    }
    assert {"commit", "versions", "hardware", "date"} <= content.keys()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"decoder_layers": 2, "decoder_attention_heads": 8, "heads_in_decoder": None}, [8, 8]),
        ({"decoder_layers": 2, "decoder_attention_heads": 8, "heads_in_decoder": "4"}, [4, 4]),
        (Namespace(decoder_layers=3, decoder_attention_heads=2), [2, 2, 2]),
    ],
)
def test_heads_by_layer(given: Any, expected: list[int]) -> None:
    assert heads_of(given) == expected


@pytest.mark.parametrize(
    ("spelling", "folder"),
    [
        ("runs/a/model.pt", "runs/a"),
        ("runs//a/model.pt", "./runs/a/"),
        ("{here}/runs/a/model.pt", "runs/a"),
        (r"my\ runs/a/model.pt", "my runs/a"),
    ],
)
def test_a_path_has_many_spellings(
    spelling: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = f"fairseq-eval-lm a --path {spelling.format(here=tmp_path)} --gen-subset test "
    expected = "fairseq-eval-lm a --path MODEL --gen-subset test"
    assert without_model(command, Path(folder, "model.pt")) == expected


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run(*arguments) == 1
    line = capsys.readouterr().err
    assert line.startswith("python -m fairseq_collab.metrics.perplexity: error: ")
    assert line.count("\n") == 1
    return line


def test_refusals(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file, a broken one, another measurement, another folder."""
    one, other = model(tmp_path / "one"), model(tmp_path / "other")
    where = ("--data", data, "--out", tmp_path)
    assert "no/valid.log: cannot be read: No such file" in refused(capsys, tmp_path / "no", *where)
    (one / "test.log").write_text("$ fairseq-eval-lm\nkilled\n")
    assert "test.log: no result of fairseq-eval-lm in it; remove" in refused(capsys, one, *where)
    add(one, "test", 100, f"{COMMAND} '")
    assert "test.log: its command: No closing quotation; remove" in refused(capsys, one, *where)
    add(one, "test", 100, COMMAND.replace("128", "64"))
    line = refused(capsys, other, one, *where)
    assert "test.log: measured with 'fairseq-eval-lm data" in line
    assert "--tokens-per-sample 128'; remove it" in line
    line = refused(capsys, other, "--data", tmp_path, "--out", tmp_path)
    assert "manifest.json: no such file; make the folder with data_prep.wikitext2" in line
    assert not (tmp_path / "perplexity.json").exists()
    line = refused(capsys, other, "--data", data, "--out", one / "test.log")
    assert "test.log" in line
    assert "Not a directory" in line
