"""``fairseq-collab compare`` and ``table`` as commands: files and exit status."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from commands import run_command
from run_folders import write_sweep


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
