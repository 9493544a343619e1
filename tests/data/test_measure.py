"""data_prep.measure and measure_memory on a tiny corpus: what they write, not how fast it was."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import is_running
from text_tools import error_line, run, write_corpus

from collab_common.errors import UserError
from data_prep import measure, measure_memory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux' /proc"),
]
PAIRS = 40


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training text where `gather` looks for it."""
    folder = tmp_path_factory.mktemp("corpora")
    text = write_corpus(folder / "text", train=60)
    for pattern in measure.TRAINING:
        stem = folder / pattern.replace("*", "all")
        stem.parent.mkdir(exist_ok=True)
        for lang in measure.LANGUAGES:
            packed = gzip.compress((text / f"train.{lang}").read_bytes())
            stem.with_name(f"{stem.name}.{lang}.gz").write_bytes(packed)
    return folder


@pytest.fixture(scope="module")
def measured(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command's --out, after all stages."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "scratch").mkdir()
    out = folder / "results" / "speed.json"
    where = ("--data", corpora, "--out", out, "--scratch", folder / "scratch")
    done = run("measure", *where, "--jobs", 1, "--pairs", PAIRS, fresh=True)  # nine processes
    assert done.returncode == 0, done.stderr
    assert not list((folder / "scratch").iterdir()), "nothing is left there"
    return out


@pytest.mark.slow
def test_every_stage_is_told(measured: Path) -> None:
    told: dict[str, Any] = json.loads(measured.read_text())
    assert told["pairs"] == 3 * PAIRS
    assert set(told["corpora"].values()) == {PAIRS}
    assert told["command"].startswith("python -m data_prep.measure --data ")
    assert {"date", "commit", "cpu", "cores", "memory_bytes", "python", "regex"} <= told.keys()
    assert [row["stage"] for row in told["stages"]] == list(measure.STAGES)
    for row in told["stages"]:
        assert all(row[name] > 0 for name in ("jobs", "lines", "lines_per_second")), row
        assert all(row[name] >= 0 for name in ("seconds", "cpu_seconds", "peak_bytes")), row
    lines = {row["stage"]: row["lines"] for row in told["stages"]}
    assert lines["tokenise en"] == lines["apply de"] == 3 * PAIRS
    assert lines["validate"] == lines["clean"] == 2 * 3 * PAIRS


def test_table_beside_it(measured: Path) -> None:
    header, _, *rows = measured.with_suffix(".table.md").read_text().splitlines()
    assert header.split("|")[1].strip() == "stage"
    assert [row.split("|")[1].strip() for row in rows] == list(measure.STAGES)


def test_refusals(tmp_path: Path) -> None:
    done = run("measure", "--data", tmp_path, "--out", tmp_path / "speed.json")
    error = error_line(done, "measure")
    assert error.endswith("no multi30k/train.en.gz; give the folder with --data")
    assert not (tmp_path / "speed.json").exists()


def test_a_stage_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tokenise en: failed with status 1"):
        measure.measure("tokenise en", tmp_path, jobs=1)


def test_memory_of_what_has_ended() -> None:
    """Between two looks any process can end, which is no error."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in measure._tree(os.getpid())
        assert measure._pss(child.pid) > 0
    finally:
        child.communicate(b"\n")
    assert not is_running(child.pid)
    assert measure._pss(child.pid) == 0
    assert measure._tree(child.pid) == [child.pid]


def test_memory_by_different_words(corpora: Path, tmp_path: Path) -> None:
    out = tmp_path / "results" / "memory.json"
    (tmp_path / "scratch").mkdir()
    where = ("--data", corpora, "--out", out, "--scratch", tmp_path / "scratch")
    size = ("--every", 1, 4, "--pairs", PAIRS, "--stress-types", 2000)
    done = run("measure_memory", *where, *size, fresh=True)  # four processes
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "scratch").iterdir()), "nothing is left there"
    told: dict[str, Any] = json.loads(out.read_text())
    assert told["command"].startswith("python -m data_prep.measure_memory --data ")
    assert {"date", "commit", "cpu", "memory_bytes", "corpora", "pairs"} <= told.keys()
    quarter, whole, made_up = told["texts"]
    assert [text["text"] for text in told["texts"]] == [
        "1 line of 4",
        "every line",
        "made-up words",
    ]
    assert (quarter["lines"], whole["lines"]) == (2 * 3 * PAIRS // 4, 2 * 3 * PAIRS)
    assert quarter["types"] < whole["types"] < made_up["types"] == made_up["tokens"] == 2000
    assert made_up["lines"] == 100, "20 words a line"
    for text in told["texts"]:
        assert (text["stage"], text["jobs"]) == ("learn 40,000", 1)
        assert text["merges"] > 0
        assert text["peak_bytes"] > 0
    assert told["growth"] == measure_memory.growth([quarter, whole])
    assert [row.split("|")[1].strip() for row in done.stdout.splitlines()[-3:]] == [
        text["text"] for text in told["texts"]
    ]


def record(text: str, words: int, tokens: int, mebibytes: int) -> dict[str, Any]:
    counts = {"tokens": tokens, "types": words, "merges": 40_000, "cpu_seconds": 1234.56}
    return {"text": text, "peak_bytes": mebibytes << 20, **counts}


def test_growth_of_words() -> None:
    """Four times the words in sixteen times the tokens is a power of a half."""
    made_up = record("made-up words", 5000, 5000, 1)
    parts = [record("1 line of 16", 100, 15_000_000 // 16, 1)]
    assert measure_memory.growth([*parts, made_up]) is None
    parts.append(record("every line", 400, 15_000_000, 1))
    assert measure_memory.growth([*parts, made_up]) == {"powers": [0.5], "wmt14_words": 1600}


def test_made_up_words(tmp_path: Path) -> None:
    words = ["ab", "Cd", "3", "ef", ",", "gh", "ij"]
    made = measure_memory.make_up(words, 12)
    assert len(set(made)) == len(made) == 12
    assert set(words) < set(made)
    assert made == measure_memory.make_up(words, 12), "the same each time"
    measure_memory.write_made_up(made * 5, tmp_path / "made-up")
    assert sorted(measure_memory.different_words(tmp_path / "made-up")) == sorted(made)
    sides = [path.read_text().splitlines() for path in measure.pair(tmp_path / "made-up", "tok")]
    assert [len(lines) for lines in sides] == [2, 1]
    assert [word for line in (sides[0][0], sides[1][0], sides[0][1]) for word in line.split()] == (
        made * 5
    )
    for types in (7, 13):
        with pytest.raises(UserError, match=f"--stress-types {types}: the text has 7 different"):
            measure_memory.make_up(words, types)


def test_what_measure_memory_refuses(
    corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "memory.json"
    done = run("measure_memory", "--data", tmp_path, "--out", out)
    assert error_line(done, "measure_memory").endswith("; give the folder with --data")
    options = ["--data", str(corpora), "--pairs", "1", "--out", str(out), "--every", "9", "8"]
    assert measure_memory.main([*options, "--stress-types", "1"]) == 1
    printed = capsys.readouterr()
    assert "error: --stress-types 1: the text has " in printed.err
    assert '"stage"' not in printed.out, "refused before anything is measured"
    assert measure_memory.main(options) == 1, "both parts are the first line"
    assert capsys.readouterr().err.endswith(
        "error: 1 line of 8: no more different words, or no more tokens, than 1 line of 9; "
        "give numbers further apart with --every\n"
    )
