"""Decoding speed of trained models, by the real command on a toy model; no test looks at a time."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from fairseq_collab.bench import report
from fairseq_collab.commands import bench


@pytest.mark.slow
@pytest.mark.usefixtures("warm_children")
def test_a_model_is_timed(
    data: Path,
    ending: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ending, "model.pt")
    Path("results").mkdir()
    options = "--names one --rounds 1 --threads 1 --device cpu --out results/speed.json"
    assert bench.main(["--decoding", "model.pt", "--data", str(data), *options.split()]) == 0
    content = json.loads((tmp_path / "results" / "speed.json").read_text())
    assert report.markdown("decoding.md.j2", content=content) in capsys.readouterr().out
    (model,) = content["models"]
    assert (model["name"], model["file"]) == ("one", "model.pt"), "as they were given"
    (only,) = model["rounds"]
    assert only["sentences"] == 50
    assert only["sentences_per_second"] > 0
    assert content["command"].startswith(
        shlex.join(["fairseq-collab", "bench", "--decoding", "model.pt", "--data"])
    )
    assert (content["threads"], content["beam"], content["batch"]) == (1, 5, 64)
    assert {"commit", "versions", "hardware", "date", "load_average_before"} <= content.keys()


@pytest.mark.slow
@pytest.mark.usefixtures("warm_children")
def test_all_translations_are_as_long_as_asked(data: Path, ending: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    options = ["--length", "7", "--rounds", "1", "--threads", "1", "--device", "cpu"]
    files = ["--decoding", str(ending), "--data", str(data), "--out", str(out)]
    assert bench.main([*files, *options]) == 0
    content = json.loads(out.read_text())
    assert content["length"] == 7
    (only,) = content["models"][0]["rounds"]
    assert only["target_tokens"] == 50 * 8, "the end of a sentence is a token, too"
