"""What the recipe of summaries asks for before it trains anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from commands import BIN, REPOSITORY

from data_prep import dialogsum


def test_it_wants_the_text_of_dialogsum(tmp_path: Path) -> None:
    """In an environment that is there it makes none."""
    settings = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    settings |= {"DATA": str(tmp_path / "data"), "OUT": str(tmp_path / "out")}
    done = subprocess.run(
        ["bash", REPOSITORY / "recipes" / "grouped_summaries.sh"],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("data_prep.dialogsum: error: where is the text of DialogSum?; give")
    assert dialogsum.HOME in line
    assert not done.stdout
    assert not list(tmp_path.iterdir())
