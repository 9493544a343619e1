"""The embedded corpus, generated and prepared by one command."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import wrong_usage
from text_tools import manifest, names

from data_prep import demo_data
from data_prep.embedded import files
from data_prep.embedded.files import Request, make

SMALL = ["--train", "300", "--valid", "20", "--test", "20", "--vocab-size", "300"]


def prepare(out: Path, *more: str) -> int:
    return demo_data.main(["--out", str(out), *SMALL, *more])


@pytest.mark.usefixtures("no_fairseq")
def test_made_once_and_the_same_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    assert prepare(out) == 0
    assert names(tmp_path) == {"demo", "demo-text"}
    made = manifest(out)
    assert made["origin"] == {"corpus": "embedded", "seed": 1}
    assert made["stages"]["train"]["kept"] == 300
    assert {"train.conllu", "train.align"} <= names(tmp_path / "demo-text")

    assert prepare(out) == 0
    assert "nothing to do" in capsys.readouterr().out

    for name, seed in (("again", "1"), ("other", "2")):
        assert prepare(tmp_path / name, "--seed", seed) == 0
    assert manifest(tmp_path / "again")["outputs"] == made["outputs"]
    assert manifest(tmp_path / "other")["inputs"] != made["inputs"]


@pytest.mark.usefixtures("no_fairseq")
def test_other_options_are_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    assert prepare(out) == 0
    capsys.readouterr()
    assert prepare(out, "--seed", "2") == 1
    assert capsys.readouterr().err == (
        f"data_prep.demo_data: error: {out}-text: made from something else "
        "(options.seed: 1 there, 2 asked for); "
        "give --force to rebuild it, or choose another --out\n"
    )
    assert prepare(out, "--seed", "2", "--force") == 0
    assert manifest(out)["origin"]["seed"] == 2


def test_an_earlier_grammar_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Request(20, 5, 5)
    monkeypatch.setattr(files, "fingerprint_tree", lambda folder: {"a.txt": {"sha256": "old"}})
    make(tmp_path / "demo-text", small)
    monkeypatch.undo()
    out = tmp_path / "demo"
    sizes = ["--train", "20", "--valid", "5", "--test", "5", "--vocab-size", "300"]
    assert demo_data.main(["--out", str(out), *sizes]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"data_prep.demo_data: error: {out}-text: made from something else (")
    assert "inputs." in message
    assert message.count("\n") == 1


def test_bad_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with wrong_usage(capsys, "argument --seed: must be a whole number from 0 up, not '-1'"):
        prepare(tmp_path / "demo", "--seed", "-1")
    assert names(tmp_path) == set()
