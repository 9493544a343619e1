"""``fairseq-collab compare`` and ``table`` as commands: files, exit status, one line for errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from commands import refuse, run_command
from run_folders import write_run, write_sweep
from unit.test_table import split

from fairseq_collab.commands.table import main


def test_table_and_compare(tmp_path: Path) -> None:
    runs, out = write_sweep(tmp_path / "runs"), tmp_path / "new" / "out"
    done = run_command("fairseq-collab", "table", runs, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (out / "table.md").read_text()
    assert "- collab_32_1: failed (out of memory)" in done.stdout
    assert "## Against concatenated" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == [
        "figure.png",
        "figure.svg",
        "table.csv",
        "table.md",
    ]
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "figure.svg").read_text()
    with (out / "table.csv").open(newline="") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["collab", "concatenated"]

    command = ("fairseq-collab", "compare", runs / "concatenated_64_1", runs / "collab_64_1")
    done = run_command(*command, "--json", "--samples", "100")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["p"] < 0.05


def test_a_row_a_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = write_sweep(tmp_path / "runs"), tmp_path / "out"
    assert main([str(runs), "--x", "none", "--out", str(out)]) == 0
    lines = [line[:3] for line in split(capsys.readouterr().out.splitlines())]
    assert ["method", "seeds", "BLEU"] in lines
    assert ["collab", "1"] in [line[:2] for line in lines]
    assert ["method", "seeds in both", "BLEU more than concatenated"] in lines
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "figure.svg").read_text()


def test_refusals_take_one_line(tmp_path: Path) -> None:
    runs = write_sweep(tmp_path)
    line = refuse("fairseq-collab", "compare", runs / "concatenated_64_1", runs / "collab_32_1")
    assert line == (
        f"fairseq-collab compare: error: {runs / 'collab_32_1'}: not a finished run: failed "
        "(out of memory); give a run that has a score.json, or an output of fairseq-generate"
    )
    write_run(runs, "collab", 16, subset="valid")
    out = tmp_path / "out"
    line = refuse("fairseq-collab", "table", runs, "--out", out)
    assert line.startswith("fairseq-collab table: error: ")
    assert "differ in subset: valid and test; make a table of each" in line
    assert not out.exists()
