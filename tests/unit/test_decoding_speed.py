"""Decoding speed of several models: the summary, the table, the order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_collab.bench import decoding_speed
from fairseq_collab.bench.checkpoints import Finished
from fairseq_collab.bench.decoding_speed import main, markdown, summarise, time_in_turn
from fairseq_collab.bench.settings import Settings


def finished(speed: float, tokens: int = 1500) -> Finished:
    return Finished(100 / speed, 9.0, 100, tokens, [])


def test_ratios_are_of_one_round() -> None:
    """The machine is half as fast in the second round, and the ratio there is what it was."""
    found = [
        [finished(100), finished(50), finished(110)],
        [finished(120), finished(60), finished(99, 1501)],
    ]
    models = [Path("runs/a.pt"), Path("runs/b.pt")]
    records = summarise(models, ["ordinary", "pruned"], found)
    first, second = records
    assert first["ratio"] == {"median": 1, "least": 1, "most": 1}
    assert second["ratio"] == {"median": 1.2, "least": 0.9, "most": 1.2}
    assert second["sentences_per_second"] == {"median": 99, "least": 60, "most": 120}
    assert (second["name"], second["file"]) == ("pruned", "runs/b.pt")
    assert second["rounds"][1] == {
        "sentences": 100,
        "sentences_per_second": 60,
        "target_tokens": 1500,
        "wall_seconds": 9,
    }
    assert markdown({"models": records}).splitlines()[2:] == [
        "| ordinary | 100 (50 to 110) | 1.00 (1.00 to 1.00) | 1,500 |",
        "| pruned | 99 (60 to 120) | 1.20 (0.90 to 1.20) | 1,500 to 1,501 |",
    ]


def test_every_other_round_goes_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def translate(path: Path, settings: Settings) -> Finished:
        order.append(path.name)
        return finished(len(order), tokens=ord(path.name))

    monkeypatch.setattr(decoding_speed, "fairseq_generate", translate)
    models = [Path(name) for name in "abc"]
    found = time_in_turn(models, ["A", "B", "C"], 3, Settings())
    assert order == [*"abc", *"cba", *"abc"]
    for model, rounds in zip(models, found, strict=True):
        assert {one.tokens for one in rounds} == {ord(model.name)}, "each is told of its own"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """As far as can be seen without reading it, a folder for fairseq."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "test.en-de.en.idx").touch()
    return folder


def refused(capsys: pytest.CaptureFixture[str], data: Path, *more: object) -> str:
    assert main([*map(str, (data, *more)), "--out", str(data / "speed.json")]) == 1
    line = capsys.readouterr().err
    assert line.startswith("python -m fairseq_collab.bench.decoding_speed: error: ")
    assert line.count("\n") == 1, "and nothing was timed"
    assert not (data / "speed.json").exists()
    return line


def test_what_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, missing = data / "test.en-de.en.idx", tmp_path / "no.pt"
    line = refused(capsys, data, "--models", here, here, "--names", "one")
    told = "--names: 1 for 2 models; give one for each of --models, in their order"
    assert line.endswith(f"{told}\n")
    line = refused(capsys, data, "--models", here, missing, "--names", "one", "two")
    assert line.endswith(f"{missing}: no such file; give checkpoints with --models\n")
    (data / "test.en-de.en.idx").rename(tmp_path / "kept")
    here = tmp_path / "kept"
    line = refused(capsys, data, "--models", here, "--names", "one")
    todo = "give the folder that fairseq-preprocess has written"
    assert line.endswith(f"{data}: no binarised test set in it; {todo}\n")
    line = refused(capsys, tmp_path / "nowhere", "--models", here, "--names", "one")
    assert line.endswith(f"{tmp_path / 'nowhere'}: there is no such data folder; {todo}\n")
