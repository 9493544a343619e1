"""Decoding speed of several models: the summary, the table, the order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab_common.errors import UserError
from fairseq_collab.bench import fairseq_generate, report
from fairseq_collab.bench.fairseq_generate import Finished, summarise
from fairseq_collab.bench.settings import Settings
from fairseq_collab.commands import bench
from fairseq_collab.runs.fairseq_output import Translated


def finished(speed: float, tokens: int = 1500) -> Finished:
    return Finished(Translated(100, tokens, speed), 9.0, [])


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
    table = report.markdown("decoding.md.j2", content={"models": records}).splitlines()[2:]
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in table] == [
        ["ordinary", "100 (50 to 110)", "1.00 (1.00 to 1.00)", "1,500"],
        ["pruned", "99 (60 to 120)", "1.20 (0.90 to 1.20)", "1,500 to 1,501"],
    ]


def test_every_other_round_goes_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def translate(path: Path, settings: Settings, length: int | None) -> Finished:
        order.append(path.name)
        return finished(len(order), tokens=ord(path.name))

    monkeypatch.setattr(fairseq_generate, "translate", translate)
    models = [Path(name) for name in "abc"]
    found = fairseq_generate.in_turn(models, 3, Settings())
    assert order == [*"abc", *"cba", *"abc"]
    for model, rounds in zip(models, found, strict=True):
        assert {one.summary.tokens for one in rounds} == {ord(model.name)}, (
            "each is told of its own"
        )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """As far as can be seen without reading it, a folder for fairseq."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "test.en-de.en.idx").touch()
    return folder


def test_what_is_refused(data: Path, tmp_path: Path) -> None:
    def refused(told: str, data: Path, *models: Path, names: tuple[str, ...] = ()) -> None:
        options = ("--decoding", *models, *(("--names", *names) if names else ()))
        options = (*options, "--data", data, "--out", tmp_path / "speed.json")
        with pytest.raises(UserError) as error:
            bench.main([*map(str, options)])
        assert str(error.value) == told
        assert not (tmp_path / "speed.json").exists()

    index, missing = data / "test.en-de.en.idx", tmp_path / "no.pt"
    told = "--names: 1 for 2 models; give one for each model, in their order"
    refused(told, data, index, index, names=("one",))
    refused(
        f"{missing}: there is no such checkpoint; give --decoding another one", data, index, missing
    )
    index.rename(tmp_path / "kept")
    todo = "give the folder that fairseq-preprocess has written"
    refused(f"{data}: no binarised test set in it; {todo}", data, tmp_path / "kept")
    nowhere = tmp_path / "nowhere"
    refused(f"{nowhere}: there is no such data folder; {todo}", nowhere, tmp_path / "kept")
