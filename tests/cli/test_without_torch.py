"""Commands on finished runs alone do without fairseq and torch, and so start at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import write_run

from collab_common import main

#: fairseq and torch cannot be imported.
WITHOUT = "import sys; sys.modules.update(fairseq=None, torch=None); "
WITHOUT += "from collab_common import main; sys.exit(main.main(sys.argv[1:]))"


def run_without(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", main.WITHOUT_MODELS)
def test_they_start(name: str) -> None:
    assert name in main.COMMANDS
    done = run_without(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_is_made(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64)
    done = run_without("table", tmp_path, "--out", tmp_path / "table")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "table" / "figure.png").exists()


def test_others_need_them() -> None:
    done = run_without("cost", "--help")
    assert done.returncode == 1
    assert "fairseq" in done.stderr
