"""What files of results tell of where they come from, and that it can be found again."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import pytest
from refusals import refusing
from run_folders import start_run, write_run

from collab_common import provenance
from collab_common.provenance import circumstances, hardware
from collab_lab.runs.run import Run


def test_circumstances() -> None:
    found = circumstances(cpu=True)
    assert found.keys() == {"commit", "versions", "hardware", "date"}
    assert found["versions"]["torch"] == version("torch")
    assert re.match(r"3\.\d+\.\d+", found["versions"]["python"])
    assert datetime.fromisoformat(found["date"]).hour == 0
    assert found["hardware"] == hardware(cpu=True)
    assert re.search(r"\S, \d+ cores, \d+ threads? a training$", found["hardware"])


def test_no_commit_of_a_repository_that_we_are_installed_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "theirs"]):
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    for folder, is_ours in (("collab_common", True), ("env/collab_common", False)):
        (tmp_path / folder).mkdir(parents=True)
        monkeypatch.setattr(provenance, "__file__", str(tmp_path / folder / "provenance.py"))
        assert (provenance.commit() is not None) == is_ours


@pytest.mark.parametrize(
    ("recorded", "kept", "found"),
    [
        ("raw/test.de", "", "data/raw/test.de"),
        ("reference.txt", "reference.txt", "collab_64_1/reference.txt"),
        ("/data/raw/test.de", "", "/data/raw/test.de"),
    ],
)
def test_the_reference_is_kept_in_the_run_or_in_the_data_folder(
    tmp_path: Path, recorded: str, kept: str, found: str
) -> None:
    run = Run(write_run(tmp_path, "collab", 64, reference=recorded))
    run.config_file.write_text(f"task: {{data: {tmp_path}/data}}\n")
    if kept:
        (run.folder / kept).touch()
    assert run.reference() == tmp_path / found


def test_no_reference_before_the_score(tmp_path: Path) -> None:
    with refusing("new"):
        Run(start_run(tmp_path, "new")).reference()


@pytest.mark.parametrize("content", [b"a: [1", b"- 1"])
def test_a_faulty_configuration_is_one_line(tmp_path: Path, content: bytes) -> None:
    run = Run(start_run(tmp_path, "run"))
    run.config_file.write_bytes(content)
    with refusing(str(run.config_file)):
        run.config()


def test_an_unreadable_score_is_named(tmp_path: Path) -> None:
    run = Run(start_run(tmp_path, "run"))
    assert run.score() is None
    run.score_file.write_text(json.dumps({"bleu": 1.0})[:-1])
    with refusing(str(run.score_file)):
        run.score()
