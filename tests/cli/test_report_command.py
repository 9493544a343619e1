"""``fairseq-collab report`` as a command: files, exit status, one line for errors."""

from __future__ import annotations

import json
from pathlib import Path

from commands import refuse, run_command
from run_folders import write_sweep


def test_a_page_and_its_numbers(tmp_path: Path) -> None:
    write_sweep(tmp_path / "runs" / "deep")
    out = tmp_path / "new" / "page.html"
    done = run_command("fairseq-collab", "report", tmp_path / "runs", "--out", out)
    assert done.returncode == 0, done.stderr
    top, _, heads, _, *methods, _, left_out, written = done.stdout.splitlines()
    assert heads.startswith("| row, method | runs in | seeds | BLEU (95 %) | SD | chrF |")
    assert [row.split(" | ")[:3] for row in methods] == [
        ["| 1 collab", "deep", "1"],
        ["| 2 concatenated", "deep", "1"],
    ]
    assert [top, left_out, written] == [
        "toy, test: 2 rows, 2 runs",
        "left out: deep/collab_32_1: failed (out of memory)",
        f"{out} and page.json",
    ]
    assert sorted(path.name for path in out.parent.iterdir()) == ["page.html", "page.json"]
    [section] = json.loads(out.with_suffix(".json").read_text())["sections"]
    assert [pair["verdict"] for pair in section["tests"]] == ["all"]
    assert out.read_text().startswith("<!doctype html>\n<html")


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    line = refuse("fairseq-collab", "report", tmp_path / "none", "--out", out)
    assert line == f"fairseq-collab report: error: {tmp_path}/none: there is no such folder"
    assert not out.exists()
