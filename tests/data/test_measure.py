"""data_prep.measure on a tiny corpus: what its files hold, not how fast anything was."""

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

from data_prep import measure
from fairseq_compat.errors import UserError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux' /proc")
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
    """The command's --out, after all stages and the stress test."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "scratch").mkdir()
    out = folder / "results" / "speed.json"
    where = ("--data", corpora, "--out", out, "--scratch", folder / "scratch")
    size = ("--jobs", 1, "--pairs", PAIRS, "--stress-types", 2000)
    done = run("measure", *where, *size, timeout=240)  # ten processes, one after another
    assert done.returncode == 0, done.stderr
    assert not list((folder / "scratch").iterdir()), "nothing is left there"
    return out


def test_every_stage_is_told(measured: Path) -> None:
    told: dict[str, Any] = json.loads(measured.read_text())
    assert told["pairs"] == 3 * PAIRS
    assert set(told["corpora"].values()) == {PAIRS}
    assert told["command"].startswith("python -m data_prep.measure --data ")
    assert {"date", "commit", "cpu", "cores", "memory_bytes", "python", "regex"} <= told.keys()
    stress = measure.STRESS.format(2000)
    assert [row["stage"] for row in told["stages"]] == [*measure.STAGES, stress]
    for row in told["stages"]:
        assert all(row[name] > 0 for name in ("jobs", "lines", "lines_per_second")), row
        assert all(row[name] >= 0 for name in ("seconds", "cpu_seconds", "peak_bytes")), row
    lines = {row["stage"]: row["lines"] for row in told["stages"]}
    assert lines["tokenise en"] == lines["apply de"] == 3 * PAIRS
    assert lines["validate"] == lines["clean"] == 2 * 3 * PAIRS
    assert lines[stress] == 100, "20 words a line"


def test_table_beside_it(measured: Path) -> None:
    header, _, *rows = measured.with_suffix(".table.md").read_text().splitlines()
    assert header.startswith("| stage | jobs | lines/s |")
    assert len(rows) == len(measure.STAGES) + 1
    for row in rows:
        if row.startswith("| learn"):
            assert row.endswith(" MiB |  |  |"), "learning does not grow with lines"
        else:
            assert row.count(" min |") == 2, "in proportion to the tokens of WMT14"


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
