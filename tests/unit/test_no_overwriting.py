"""No command writes over a file that exists, be it one that it reads, unless it has --force."""

from __future__ import annotations

from pathlib import Path

import pytest
from parsers import OURS, options_of
from run_folders import write_sweep

from collab_lab.cli.main import main

#: Commands, and what they would write over.
COMMANDS = {
    "advise m.pt . --want cache=0.5 --out .": "cache-0.5.md",
    "average m.pt --out m.pt": "m.pt",
    "bench --quick --presets tiny --out m.pt": "m.pt",
    "export m.pt . --format fairseq --out .": ".",
    "prices m.pt . --out .": "prices.json",
    "prune m.pt --random 1 --keep 1 --out m.pt": "m.pt",
    "prune m.pt --random 1 --keep 1 --out new.pt": "new.yaml",
    "reparametrize m.pt . --key-dim 4 --out m.pt": "m.pt",
    "table runs --out .": "table.md",
    "vote m.pt . --out m.pt": "m.pt",
}
#: They resume what is in their folder, and reject a folder of something else.
RESUMING = {"heads", "sweep", *(name for name in OURS if name.startswith("data "))}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sweep(tmp_path / "runs")
    for name in ("m.pt", "new.yaml", "table.md", "cache-0.5.md", "prices.json"):
        (tmp_path / name).write_text("a former result")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("command", "written"), COMMANDS.items(), ids=COMMANDS)
def test_what_exists_is_not_written_over(
    command: str, written: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(command.split()) == 1
    said = capsys.readouterr().err
    assert f"error: {written}: exists already; " in said
    assert "give another --out" in said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("out", [".", "..", "model"])
@pytest.mark.parametrize("command", ["prune m.pt --keep 1", "reparametrize m.pt . --key-dim 4"])
def test_no_name_of_a_checkpoint(
    command: str, out: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--out", out]) == 1
    assert f"error: {out}: is no name of a checkpoint; " in capsys.readouterr().err


def test_force(folder: Path) -> None:
    assert main(["table", "runs", "--out", ".", "--force"]) == 0
    assert main(["table", "runs", "--out", "."]) == 1


def test_every_command_that_writes_is_tried() -> None:
    writing = {name for name in OURS if "--out" in options_of(name)}
    assert writing == {command.split()[0] for command in COMMANDS} | RESUMING
