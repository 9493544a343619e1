"""The corpus on disk and its command line: messages, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab_common.files import read_json
from data_prep.embedded import splits
from data_prep.embedded.__main__ import main

SMALL = ["--train", "30", "--valid", "10", "--test", "10"]
NAMES = {
    f"{split}.{suffix}"
    for split in ("train", "valid", "test")
    for suffix in ("en", "de", "tok.de", "conllu", "align")
} | {"manifest.json"}


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "corpus"
    assert main(["--out", str(out), *SMALL, "--seed", "5"]) == 0
    assert {p.name for p in out.iterdir()} == NAMES
    assert "written" in capsys.readouterr().out
    assert read_json(out / "manifest.json")["options"]["train"] == 30
    for split, pairs in splits(30, 10, 10, 5).items():
        assert b"\r" not in (out / f"{split}.en").read_bytes()
        assert lines(out / f"{split}.en") == [p.english for p in pairs]
        assert lines(out / f"{split}.de") == [p.german for p in pairs]
        assert lines(out / f"{split}.tok.de") == [" ".join(p.german_tokens) for p in pairs]
        assert len(lines(out / f"{split}.align")) == len(pairs)
        blocks = (out / f"{split}.conllu").read_text("utf-8").split("\n\n")
        assert len(blocks) == len(pairs) + 1


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


@pytest.mark.parametrize("name", ["mine.txt", "manifest.json", ""])
def test_what_is_not_ours_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A folder with files of others, with a manifest of others, a file in the way."""
    foreign = tmp_path / "foreign"
    if name:
        foreign.mkdir()
    precious = foreign / name if name else foreign
    precious.write_text('{"format": 1}')
    assert main(["--out", str(foreign), *SMALL]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "choose another --out" in message
    assert precious.read_text() == '{"format": 1}'
    assert {p.name for p in tmp_path.rglob("*")} <= {"foreign", name}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--out"),
        (["--out", "x", "--train", "many"], "must be a whole number from 0 up, not 'many'"),
        (["--out", "x", "--test", "-1"], "must be a whole number from 0 up, not '-1'"),
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
