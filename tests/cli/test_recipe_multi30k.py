"""recipes/multi30k.sh, from archives on a web server to scores."""

from __future__ import annotations

from pathlib import Path

import pytest
from data.corpus_archives import filled, multi30k, served
from data.loopback import serving
from data.recipe_runs import succeed
from data.text_tools import error_line, run

pytestmark = pytest.mark.slow


def test_multi30k(shared_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serving() as server:
        server.files = served(multi30k(shared_data))
        succeed("multi30k", out, "--mirror", server.url, "--stop-stage", 4)
        assert len(server.ranges) == 6
    assert len((out / "data" / "raw" / "test.de").read_text().splitlines()) == 20
    assert (out / "data" / "train.en-de.en.idx").is_file()


def test_published_captions(shared_data: Path, tmp_path: Path) -> None:
    """The true files pass their hashes; fewer captions do not."""
    where = ("--from", shared_data / "multi30k")
    done = run("multi30k_recipe", "fetch", "--out", tmp_path / "out", *where)
    assert done.returncode == 0, done.stderr
    fewer = filled(tmp_path / "fewer", multi30k(shared_data, 100))
    done = run("multi30k_recipe", "fetch", "--out", tmp_path / "other", "--from", fewer)
    assert "train.en.gz: 100 lines instead of 29,000" in error_line(done, "multi30k_recipe")
