"""``fairseq-collab table``, ``compare`` and ``report`` as commands: files, exit status, errors."""

from __future__ import annotations

from pathlib import Path

from commands import refuse, run_command
from run_folders import write_sweep


def test_table_compare_and_report(tmp_path: Path) -> None:
    runs, out = write_sweep(tmp_path / "runs"), tmp_path / "new" / "out"
    done = run_command("fairseq-collab", "table", runs, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (out / "table.md").read_text()
    assert "- collab_32_1: failed (out of memory)" in done.stdout
    assert "## Against concatenated" in done.stdout
    files = {"figure.png", "figure.svg", "runs.json", "table.md"}
    assert {path.name for path in out.iterdir()} == files
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")

    command = ("fairseq-collab", "compare", runs / "concatenated_64_1", runs / "collab_64_1")
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert "paired bootstrap" in done.stdout

    done = run_command("fairseq-collab", "report", runs, "--out", out / "page.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Best: shared keys (BLEU ")
    assert (out / "page.html").read_text().startswith("<!doctype html>\n<html")


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    line = refuse("fairseq-collab", "report", tmp_path / "none", "--out", out)
    expected = f"fairseq-collab report: error: {tmp_path}/none: folder not found; give"
    assert line.startswith(expected)
    assert not out.exists()
