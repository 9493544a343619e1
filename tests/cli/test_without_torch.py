"""Commands on finished runs alone do without fairseq and torch, and so start at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import write_sweep

#: Neither fairseq nor torch can be imported.
WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name in ("fairseq", "torch"):
            raise ImportError(f"no {name} here")
sys.meta_path.insert(0, Without())
from collab_common import main
sys.exit(main.main(sys.argv[1:]))
"""


def run_without(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["compare", "pages", "report", "table"])
def test_they_start(name: str) -> None:
    done = run_without(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_tables_and_tests_are_made(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    write_sweep(runs)
    for words in (
        ("table", runs, "--out", out), ("report", runs, "--out", out / "report.html"),
        ("compare", runs / "collab_64_1", runs / "concatenated_64_1"),
    ):  # fmt: skip
        done = run_without(*words)
        assert (done.returncode, done.stderr) == (0, "")
    assert (out / "figure.png").exists()
    assert (out / "report.html").exists()


def test_others_need_them() -> None:
    done = run_without("cost", "--help")
    assert done.returncode == 1
    assert "fairseq" in done.stderr
