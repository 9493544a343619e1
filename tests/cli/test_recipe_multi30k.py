"""recipes/multi30k.sh and recipes/tatoeba.sh, from archives on a web server to scores."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from data.corpus_archives import filled, multi30k, opus_tatoeba, served
from data.loopback import serving
from data.recipe_runs import refuse, scores, succeed
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


def test_tatoeba(shared_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serving() as server:
        server.files = served(opus_tatoeba(shared_data))
        small = ("--method", "concatenated", "--key-dim", 16)
        succeed("tatoeba", out, "--mirror", server.url, *small)
    told = json.loads((out / "text" / "manifest.json").read_text())["steps"]["splits"]["split"]
    assert told["read"] == 4010
    assert told["duplicate"] >= 10
    sets = sum(told[name] for name in ("train", "valid", "test"))
    assert sets + told["duplicate"] + told["held_out"] + told["empty"] == told["read"]
    score = scores(out)
    assert (score.sentences, score.method) == (told["test"], "concatenated")
    assert score.key_dim == 16
    assert score.tokenised_bleu is None, "the text is not tokenised"


def test_own_splits_of_tatoeba(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "tatoeba_en_de"
    out = tmp_path / "out"
    options = ("--variant", "split", "--stop-stage", 2)
    succeed("tatoeba", out, "--from", folder, *options)
    with gzip.open(folder / "valid.de.gz") as stream:
        assert (out / "original" / "valid.de").read_bytes() == stream.read()
    error = refuse("tatoeba", tmp_path / "other", *options)
    assert "train.en.gz: no public address of this file is known; give --from DIR" in error


def test_published_captions(shared_data: Path, tmp_path: Path) -> None:
    """The true files pass their hashes; fewer captions do not."""
    where = ("--from", shared_data / "multi30k")
    done = run("multi30k_recipe", "fetch", "--out", tmp_path / "out", *where)
    assert done.returncode == 0, done.stderr
    fewer = filled(tmp_path / "fewer", multi30k(shared_data, 100))
    done = run("multi30k_recipe", "fetch", "--out", tmp_path / "other", "--from", fewer)
    assert "train.en.gz: 100 lines instead of 29,000" in error_line(done, "multi30k_recipe")
