"""``fairseq-collab report`` as a command: files, exit status, one line for errors."""

from __future__ import annotations

import json
from pathlib import Path

from commands import refuse, run_command
from run_folders import write_sweep


def test_a_page_and_its_numbers(tmp_path: Path) -> None:
    runs, out = write_sweep(tmp_path / "runs" / "deep"), tmp_path / "new" / "page.html"
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
    command = ("fairseq-collab", "compare", runs / "collab_64_1", runs / "concatenated_64_1")
    compared = json.loads(run_command(*command, "--json").stdout)["results"][0]
    assert section["tests"][0]["seeds"][0]["p"] == round(compared["p"], 6)
    assert out.read_text().startswith("<!doctype html>\n<html")


def test_refusals_take_one_line(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    line = refuse("fairseq-collab", "report", tmp_path / "none", "--out", out)
    assert line == f"fairseq-collab report: error: {tmp_path}/none: there is no such folder"
    runs = write_sweep(tmp_path / "runs")
    (runs / "collab_64_1" / "generation.txt").unlink()
    line = refuse("fairseq-collab", "report", runs, "--out", out)
    assert line.startswith("fairseq-collab report: error: ")
    assert line.endswith("generation.txt: cannot be read: No such file or directory")
    done = run_command("fairseq-collab", "report", runs, "--out", tmp_path / "out.json")
    assert done.returncode == 2
    assert done.stderr.endswith("argument --out: give a name that ends in .html\n")
    assert not list(tmp_path.glob("out*"))
