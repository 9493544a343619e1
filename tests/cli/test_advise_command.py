"""``fairseq-collab advise``: an answer, the same after an interruption, and what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import torch
from refusals import refusing

from collab_common.main import main
from fairseq_collab.advice import candidates, judge, ledger
from fairseq_collab.advice.candidates import candidate, ways
from fairseq_collab.advice.search import FINALISTS
from fairseq_collab.commands import advise
from fairseq_collab.convert import calibrate
from fairseq_collab.trained import opener
from fairseq_compat.fairseq_fixes import UNDEFINED

FILES = {"advice.json", "advice.html", "advised.pt", "advised.ct2", "tuned"}


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways to share, one size a place, timed once: what is tried is as it is with more."""
    for name in ("SHARES", "FFN_SHARES"):
        monkeypatch.setattr(candidates, name, (0.5,))
    monkeypatch.setattr(judge, "TURNS", 1)
    few = {name: candidates.SHARING[name] for name in ("grouped-query", "latent")}
    monkeypatch.setattr(candidates, "SHARING", few)


def run(stock: Path, data: Path, out: Path, *options: str) -> int:
    return advise.main([str(stock), "--data", str(data), "--out", str(out), *options])


def without_times(out: Path) -> dict:
    found = json.loads((out / "advice.json").read_text())["found"]
    return {name: value for name, value in found.items() if not name.startswith(("speed", "until"))}


def test_an_answer_and_the_same_after_interruptions(
    stock: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    wishes = ["--want", "cache=0.6", "--max-loss=100", "--minutes=1", "--tune=2", "--export=ct2"]
    assert run(stock, data, whole, *wishes) == 0
    said = capsys.readouterr().out
    assert {path.name for path in whole.iterdir()} == FILES
    assert 1 <= len(list((whole / "tuned").glob("*.pt"))) <= FINALISTS
    page = (whole / "advice.html").read_text()
    assert page.index("cache=0.6") < page.index("How to make each")
    model = opener.load(whole / "advised.pt", data)
    assert model.arch != "transformer"
    found = json.loads((whole / "advice.json").read_text())
    (answer,) = [one for one in found["finals"] if one["name"] == found["answer"]]
    assert answer["ratios"]["cache"] <= 0.6

    write = ledger.Ledger.write

    def killed(self: ledger.Ledger) -> None:
        write(self)
        if len(self.found) % 9 == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ledger.Ledger, "write", killed)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                run(stock, data, cut, *wishes)
    assert run(stock, data, cut, *wishes) == 0
    assert capsys.readouterr().out.splitlines()[0] == said.splitlines()[0]
    assert without_times(cut) == without_times(whole)


@pytest.mark.parametrize(
    ("model", "refused"),
    [("stock", []), ("trained", ["heads", "grouped-query", "latent"])],
    ids=["stock", "collab"],
)
def test_the_commands_by_hand_make_the_same_model(
    model: str, refused: list[str], data: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every way, after a narrower feed-forward layer."""
    checkpoint: Path = request.getfixturevalue(model)
    request.getfixturevalue("monkeypatch").undo()
    request.getfixturevalue("monkeypatch").chdir(tmp_path)
    trained = opener.load(checkpoint, data)
    found, reasons = ways(trained, calibrate.batches(trained, "train", 20), seed=1)
    assert [*reasons] == refused
    for way in found.values():
        sizes = {place: sizes[0] for place, sizes in way.sizes().items() if place != "encoder"}
        one = candidate(way.name, {**way.base, **sizes})
        commands = way.commands(one, str(checkpoint), str(data), f"{way.name}.pt")
        for command in commands:
            assert main(shlex.split(command)[1:]) == 0
        made = opener.load(tmp_path / f"{way.name}.pt", data)
        expected = way.make(one)
        assert made.arch == expected.arch
        for name, weight in expected.model.state_dict().items():
            if name.endswith(UNDEFINED):
                continue
            torch.testing.assert_close(made.model.state_dict()[name], weight)


def test_a_wish_that_nothing_meets(stock: Path, data: Path, tmp_path: Path) -> None:
    with refusing("no candidate has cache=0.001; cache=0.", "is the nearest"):
        run(stock, data, tmp_path / "a", "--want", "cache=0.001", "--minutes=1")


def test_a_speed_that_nothing_has(
    stock: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so, and what comes nearest; no model is written."""
    out = tmp_path / "out"
    assert run(stock, data, out, "--want", "speed=1000", "--minutes=1") == 1
    assert "no candidate has it; the nearest is " in capsys.readouterr().out
    assert not (out / "advised.pt").exists()


def test_refusals(stock: Path, data: Path, tmp_path: Path) -> None:
    with refusing("no such data folder"):
        run(stock, tmp_path / "gone", tmp_path / "b")
    with refusing("gone.pt"):
        run(tmp_path / "gone.pt", data, tmp_path / "c")


def test_a_language_model_is_judged_by_perplexity(
    ordinary_lm: Path, monolingual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wish = ["--want", "cache=0.6", "--max-loss=50", "--minutes=1", "--tune=2"]
    assert run(ordinary_lm, monolingual, tmp_path / "out", *wish) == 0
    printed = capsys.readouterr().out
    assert "perplexity of" in printed
    for text in (printed, (tmp_path / "out" / "advice.html").read_text()):
        assert "times its speed" not in text  # it is not measured
        assert "<th>speed</th>" not in text
    with refusing("speed is measured of models that translate"):
        run(ordinary_lm, monolingual, tmp_path / "d", "--want", "speed=1.5")
