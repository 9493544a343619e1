"""The corpus on disk and its command line: messages, exit codes, interruption."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.embedded import files, splits
from data_prep.embedded.__main__ import main

SMALL = ["--train", "30", "--valid", "10", "--test", "10"]
NAMES = {
    f"{split}.{suffix}"
    for split in ("train", "valid", "test")
    for suffix in ("en", "de", "tok.de", "conllu", "align")
} | {"manifest.json"}


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "corpus"
    assert main(["--out", str(out), *SMALL, "--seed", "5"]) == 0
    assert {p.name for p in out.iterdir()} == NAMES
    assert "written" in capsys.readouterr().out
    expected = splits(30, 10, 10, 5)
    for split, pairs in expected.items():
        source = (out / f"{split}.en").read_bytes()
        assert b"\r" not in source
        assert source.decode().splitlines() == [p.english for p in pairs]
        assert (out / f"{split}.de").read_text("utf-8").splitlines() == [p.german for p in pairs]
        blocks = (out / f"{split}.conllu").read_text("utf-8").split("\n\n")
        assert len(blocks) == len(pairs) + 1
        assert len((out / f"{split}.align").read_text("utf-8").splitlines()) == len(pairs)
        tokens = (out / f"{split}.tok.de").read_text("utf-8").splitlines()
        assert tokens == [" ".join(p.german_tokens) for p in pairs]


def test_finished_output_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "corpus"
    main(["--out", str(out), *SMALL])
    before = (out / "train.en").stat().st_mtime_ns
    assert main(["--out", str(out), *SMALL]) == 0
    assert "skipped" in capsys.readouterr().out
    assert (out / "train.en").stat().st_mtime_ns == before


def test_other_request_or_damage_is_rewritten(tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    main(["--out", str(out), *SMALL])
    first = (out / "train.en").read_text("utf-8")
    main(["--out", str(out), *SMALL, "--seed", "2"])
    assert (out / "train.en").read_text("utf-8") != first
    main(["--out", str(out), *SMALL])
    (out / "train.en").write_text("damaged\n")
    main(["--out", str(out), *SMALL])
    assert (out / "train.en").read_text("utf-8") == first


def test_foreign_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["--out", str(tmp_path), *SMALL]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "not overwritten" in message
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_file_in_the_way_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "file"
    target.write_text("precious")
    assert main(["--out", str(target), *SMALL]) == 1
    assert "not a folder" in capsys.readouterr().err


def test_interruption_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "corpus"

    def interrupted(split: str, pairs: object) -> dict[str, str]:
        if split == "valid":
            raise KeyboardInterrupt
        return {"en": "half\n"}

    with monkeypatch.context() as patch:
        patch.setattr(files, "_texts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(["--out", str(out), *SMALL])
    assert list(tmp_path.iterdir()) == []
    assert main(["--out", str(out), *SMALL]) == 0


def test_killed_run_does_not_count_as_finished(tmp_path: Path) -> None:
    """A kill leaves the partial sibling behind; the corpus folder itself never appears."""
    out = tmp_path / "corpus"
    partial = tmp_path / ".corpus.partial-1"
    partial.mkdir()
    (partial / "train.en").write_text("half\n")
    assert main(["--out", str(out), *SMALL]) == 0
    assert {p.name for p in out.iterdir()} == NAMES
    assert json.loads((out / "manifest.json").read_text("utf-8"))["request"]["train"] == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--out"),
        (["--out", "x", "--train", "many"], "not a whole number"),
        (["--out", "x", "--test", "-1"], "must not be negative"),
        (["--out", "x", "--sed", "3", "--what"], "unrecognized"),
    ],
)
def test_bad_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "data_prep.embedded", "--out", str(tmp_path / "c"), *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c" / "test.en").exists()
