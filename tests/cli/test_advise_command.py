"""``fairseq-collab advise``: an answer, commands that make the same models, and errors."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refusing

from collab_lab.advice import advisor
from collab_lab.cli import advise
from collab_lab.cli.main import main
from collab_lab.trained.checkpoint import open_model
from fairseq_compat.fairseq_fixes import UNDEFINED

pytestmark = pytest.mark.slow


def run(checkpoint: Path, data: Path, out: Path, *options: str) -> int:
    command = [str(checkpoint), str(data), "--out", str(out), "--sentences=12", *options]
    return advise.main(command)


def test_an_answer_and_other_targets_in_its_folder(
    stock: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "advice"
    assert run(stock, data, out, "--want", "cache=0.6", "--max-loss=9") == 0
    said = capsys.readouterr().out
    assert said.startswith((out / "cache-0.6.md").read_text())
    found = json.loads((out / "cache-0.6.json").read_text())
    (answer,) = [one for one in found["candidates"] if one["name"] == found["answer"]]
    assert answer["shares"]["cache"] <= 0.6
    lost = answer["measured"]  # without an interval where the answer is exact
    assert lost["low"] is None or lost["low"] <= lost["mean"] <= lost["high"]
    # The numbers of sentences that there were, not those that were asked for.
    valid = (data.parent / "text" / "valid.en").read_text().count("\n")
    assert found["sentences"] == {"predicted": 12, "measured": valid}
    assert open_model(out / "cache-0.6.pt", data).arch != "transformer"

    # Nothing of the first target is lost, neither by a second one nor by the same again.
    before = {path: path.read_bytes() for path in out.iterdir()}
    wanted = ["--want", "multiply-adds=0.9", "cache=0.9"]
    monkeypatch.setattr(advisor, "chosen", lambda *_: None)
    assert run(stock, data, out, *wanted) == 1
    assert "no candidate" in capsys.readouterr().out.splitlines()[0]
    with refusing("cache-0.6.pt: exists already", "--force"):
        run(stock, data, out, "--want", "cache=0.6")
    names = {"multiply-adds-0.9_cache-0.9.json", "multiply-adds-0.9_cache-0.9.md"}
    assert {path.name for path in out.iterdir()} == {path.name for path in before} | names
    assert all(path.read_bytes() == content for path, content in before.items())
    content = json.loads((out / "multiply-adds-0.9_cache-0.9.json").read_text())
    assert content["want"] == {"multiply-adds": 0.9, "cache": 0.9}
    assert content["answer"] is None
    assert "multiply_adds" not in (out / "multiply-adds-0.9_cache-0.9.json").read_text()


@pytest.mark.parametrize("wanted", ["cache=0.6", "parameters=0.95"])
@pytest.mark.parametrize("model", ["stock", "trained", "ordinary_lm"])
def test_the_printed_commands_make_the_same_models(
    model: str,
    wanted: str,
    data: Path,
    monolingual: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint: Path = request.getfixturevalue(model)
    text = monolingual if model == "ordinary_lm" else data
    monkeypatch.setattr(advisor, "MEASURED", 9)
    built: list[advisor.Final] = []
    choose = advisor.chosen

    def recorded(finals: list[advisor.Final], *args: Any) -> advisor.Final | None:
        built.extend(finals)
        return choose(finals, *args)

    monkeypatch.setattr(advisor, "chosen", recorded)
    assert run(checkpoint, text, tmp_path, "--want", wanted, "--max-loss=9") == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("    fairseq-collab ")]
    assert len(commands) == len(built) > 0
    for words, one in zip(commands, built, strict=True):
        assert main(words[1:]) == 0
        made = open_model(Path(words[-1]), text)
        assert made.arch == one.model.arch
        for name, weight in one.model.model.state_dict().items():
            if not name.endswith(UNDEFINED):
                torch.testing.assert_close(made.model.state_dict()[name], weight, msg=name)


def test_refusals(stock: Path, data: Path, tmp_path: Path) -> None:
    with refusing("parameters=0.01", "the least is parameters=0."):
        run(stock, data, tmp_path / "a", "--want", "parameters=0.01")
    with refusing(str(tmp_path / "gone")):
        run(stock, tmp_path / "gone", tmp_path / "b", "--want", "cache=0.5")
