"""DialogSum: what is read, how it is split and cut, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from corpus_archives import text as joined

from data_prep import dialogsum

WORDS = ("Hi", "Tom", "thanks", "tea", "train", "soon", "fine", "where", "home", "late")


def text(name: str, side: str) -> list[str]:
    """Lines that repeat nothing but their words."""
    marks = ("#Person1#:", "#Person2#:") if side == "dialogue" else ("#Person1#",)
    turns = 4 if side == "dialogue" else 1
    shift = len(name)
    return [
        " ".join(
            f"{marks[k % len(marks)]} {WORDS[(i + k + shift) % 10]} {WORDS[(3 * i + k) % 10]}."
            for k in range(turns)
        )
        for i in range(dialogsum.LINES[name])
    ]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds another, small text, which passes for DialogSum."""
    monkeypatch.setattr(dialogsum, "LINES", {"train": 40, "dev": 6})
    folder = tmp_path / "small"
    folder.mkdir()
    hashes = {}
    for name in dialogsum.LINES:
        for side in dialogsum.SIDES:
            content = joined(text(name, side))
            (folder / f"{name}.{side}").write_bytes(content)
            hashes[f"{name}.{side}"] = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(dialogsum, "SHA256", hashes)
    return folder


def write_records(folder: Path) -> Path:
    """The same text as JSON lines, a turn a line of the dialogue."""
    folder.mkdir()
    for name in dialogsum.LINES:
        pairs = zip(text(name, "dialogue"), text(name, "summary"), strict=True)
        records = [
            {"fname": "x", "dialogue": dialogue.replace(" #", "\n#"), "summary": summary}
            for dialogue, summary in pairs
        ]
        lines = [json.dumps(record) for record in records]
        (folder / f"dialogsum.{name}.jsonl").write_bytes(joined(lines))
    return folder


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that the command ends with."""
    assert dialogsum.main([*map(str, arguments)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_records_and_lines_are_the_same_text(small: Path, tmp_path: Path) -> None:
    plain = dialogsum.read(small)
    assert dialogsum.read(write_records(tmp_path / "records")) == plain
    assert plain["train"].dialogues == text("train", "dialogue")
    assert plain["dev"].summaries == text("dev", "summary")


def test_gzipped_text_is_read(small: Path) -> None:
    path = small / "dev.summary"
    expected = dialogsum.read(small)
    (small / "dev.summary.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert dialogsum.read(small) == expected


def test_dev_is_halved_and_dialogues_are_cut(small: Path) -> None:
    parts = dialogsum.read(small)
    found = dialogsum.splits(parts, words=5)
    assert {name: len(part.summaries) for name, part in found.items()} == {
        "train": 40,
        "valid": 3,
        "test": 3,
    }
    summaries = parts["dev"].summaries
    assert found["valid"].summaries == [summaries[0], summaries[2], summaries[4]]
    assert found["test"].summaries == [summaries[1], summaries[3], summaries[5]]
    for name, part in found.items():
        assert len(part.dialogues) == len(part.summaries), name
        assert all(len(dialogue.split()) == 5 for dialogue in part.dialogues)
    assert found["train"].dialogues[0] == " ".join(parts["train"].dialogues[0].split()[:5])


@pytest.mark.parametrize(("words", "expected"), [(2, "a b"), (3, "a b c"), (4, "a b c")])
def test_cut(words: int, expected: str) -> None:
    assert dialogsum.cut("a b c", words) == expected


def test_the_folder_has_both_sides_and_says_what_was_done(small: Path, tmp_path: Path) -> None:
    """From text to binarised folder, with the real fairseq-preprocess; again: nothing to do."""
    out = tmp_path / "bin"
    arguments = ["--from", str(small), "--out", str(out), "--vocab-size", "60"]
    arguments += ["--dialogue-words", "6", "--on-copy", "refuse"]
    assert dialogsum.main(arguments) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["origin"]["dialogue_words"] == 6
    assert manifest["origin"]["cut_in_train"] == 40
    assert manifest["stages"]["train"]["binarised"] == 40
    assert manifest["stages"]["valid"]["binarised"] == manifest["stages"]["test"]["binarised"] == 3
    assert (out / "raw/test.summary").read_text().splitlines() == text("dev", "summary")[1::2]
    assert (out / "test.dialogue-summary.summary.idx").exists()
    before = (out / "manifest.json").stat().st_mtime_ns
    assert dialogsum.main(arguments) == 0
    assert (out / "manifest.json").stat().st_mtime_ns == before


def test_another_text_is_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = small / "dev.summary", tmp_path / "bin"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"#Person1#", b"#Person3#", 1))
    line = refused(capsys, "--from", small, "--out", out)
    assert f"{path}: not the dev.summary of DialogSum (other SHA-256); fetch it again" in line
    path.write_bytes(content + b"one more\n")
    assert f"{path}: 7 lines instead of 6" in refused(capsys, "--from", small, "--out", out)
    path.write_bytes(b"\xff" + content)
    assert f"{path}:1: invalid UTF-8: byte 0xFF at byte 0 of the file" in refused(
        capsys, "--from", small, "--out", out
    )
    path.unlink()
    assert f"{path}: no such file" in refused(capsys, "--from", small, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(
    "record", ["{", "[]", '{"dialogue": "a"}', '{"dialogue": 1, "summary": 2}']
)
def test_a_broken_record_is_named(
    record: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_records(tmp_path / "records")
    path = folder / "dialogsum.train.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], record, *lines[2:]]))
    line = refused(capsys, "--from", folder, "--out", tmp_path / "bin")
    assert f"{path}:2: not a JSON object with the texts 'dialogue' and 'summary'" in line


def test_without_a_folder_the_line_says_where_the_text_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, "--out", tmp_path / "bin")
    assert "give --from DIR with dialogsum.train.jsonl" in line
    assert dialogsum.HOME in line
    line = refused(capsys, "--from", tmp_path / "nowhere", "--out", tmp_path / "bin")
    assert f"{tmp_path / 'nowhere'}: there is no such folder" in line


def test_the_real_text(shared_data: Path) -> None:
    parts = dialogsum.read(shared_data / "dialogsum")
    for name, lines in dialogsum.LINES.items():
        assert len(parts[name].dialogues) == len(parts[name].summaries) == lines
    shortened = dialogsum.splits(parts, words=160)["train"].dialogues
    assert max(len(dialogue.split()) for dialogue in shortened) == 160
