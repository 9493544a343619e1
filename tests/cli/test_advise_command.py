"""``fairseq-collab advise``: an answer, the same answer after an interruption, and errors."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import torch
from refusals import refusing

from collab_common.main import main
from fairseq_collab.advice import advisor, candidates, measure
from fairseq_collab.advice.plan import candidate
from fairseq_collab.commands import advise
from fairseq_collab.convert import calibrate
from fairseq_collab.trained import opener
from fairseq_compat.fairseq_fixes import UNDEFINED


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two conversions, and one size per place."""
    monkeypatch.setattr(candidates, "SHARES", (0.5,))
    few = {name: candidates.SHARING[name] for name in ("grouped-query", "latent")}
    monkeypatch.setattr(candidates, "SHARING", few)


def run(stock: Path, data: Path, out: Path, *options: str) -> int:
    command = [str(stock), str(data), "--out", str(out), "--sample=12", *options]
    return advise.main(command)


def numbers(out: Path) -> dict:
    found = json.loads((out / "advice.json").read_text())["found"]
    return {name: number for name, number in found.items() if name != "seconds"}


def test_an_answer_and_the_same_after_interruptions(
    stock: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    wishes = ["--want", "cache=0.6", "--max-bleu-loss=100"]
    assert run(stock, data, whole, *wishes) == 0
    said = capsys.readouterr().out
    assert {path.name for path in whole.iterdir()} == {"advice.json", "advice.md", "advised.pt"}
    assert said.startswith((whole / "advice.md").read_text())
    assert opener.load(whole / "advised.pt", data).arch != "transformer"
    found = json.loads((whole / "advice.json").read_text())
    (answer,) = [one for one in found["finals"] if one["name"] == found["answer"]]
    assert answer["ratios"]["cache"] <= 0.6
    assert answer["low"] <= answer["drop"] <= answer["high"]

    write = measure.Ledger.write

    def killed(self: measure.Ledger, **more: object) -> None:
        write(self, **more)
        if len(self.found) % 9 == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(measure.Ledger, "write", killed)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                run(stock, data, cut, *wishes)
    assert run(stock, data, cut, *wishes) == 0
    assert capsys.readouterr().out.splitlines()[0] == said.splitlines()[0]
    assert numbers(cut) == numbers(whole)

    # Another target in the folder measures no single place again.  Here every model loses too much.
    monkeypatch.setattr(
        advisor.Advisor, "alone", lambda self, one, _: self.ledger.found[f"alone {one.name}"]
    )
    monkeypatch.setattr(advisor.Advisor, "bleu", lambda self, one: 20.0 if one else 30.0)
    assert run(stock, data, cut, "--want", "cache=0.9", "--max-bleu-loss=9.9") == 1
    assert capsys.readouterr().out.startswith("cache=0.9, at most 9.9 BLEU lost: no candidate; ")
    assert not (cut / "advised.pt").exists()


@pytest.mark.parametrize(
    ("model", "rejected"),
    [("stock", []), ("trained", ["heads", "grouped-query", "latent"])],
    ids=["stock", "collab"],
)
def test_the_command_by_hand_makes_the_same_model(
    model: str, rejected: list[str], data: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    checkpoint: Path = request.getfixturevalue(model)
    request.getfixturevalue("monkeypatch").undo()
    request.getfixturevalue("monkeypatch").chdir(tmp_path)
    trained = opener.load(checkpoint, data)
    found, reasons = candidates.methods(trained, calibrate.batches(trained, "train", 20))
    assert [*reasons] == rejected
    for method in found.values():
        sizes = {place: sizes[0] for place, sizes in method.sizes().items() if place != "encoder"}
        one = candidate(method.name, {**method.base, **sizes})
        command = method.command(one, str(checkpoint), str(data), f"{method.name}.pt")
        assert main(shlex.split(command)[1:]) == 0
        made = opener.load(tmp_path / f"{method.name}.pt", data)
        expected = method.make(one)
        assert made.arch == expected.arch
        for name, weight in expected.model.state_dict().items():
            if name.endswith(UNDEFINED):
                continue
            torch.testing.assert_close(made.model.state_dict()[name], weight)


def test_refusals(
    stock: Path, data: Path, ordinary_lm: Path, monolingual: Path, tmp_path: Path
) -> None:
    with refusing("does not translate"):
        run(ordinary_lm, monolingual, tmp_path / "c", "--want", "cache=0.5")
    with refusing("no candidate has cache=0.001; cache=0.", "is the nearest"):
        run(stock, data, tmp_path / "a", "--want", "cache=0.001")
    with refusing("data folder not found"):
        run(stock, tmp_path / "gone", tmp_path / "b", "--want", "cache=0.5")
