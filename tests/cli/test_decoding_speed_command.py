"""Decoding speed of trained models, by the real command on a toy model; no test looks at a time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from commands import succeed

from fairseq_collab.bench.decoding_speed import markdown

COMMAND = ("python", "-m", "fairseq_collab.bench.decoding_speed")


def test_a_model_is_timed(data: Path, trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained, tmp_path / "model.pt")
    options = ("--rounds", 1, "--threads", 1, "--cpu", "--out", "results/speed.json")
    models = ("--models", "model.pt", "--names", "one")
    output = succeed(*COMMAND, data, *models, *options, cwd=tmp_path)
    content = json.loads((tmp_path / "results" / "speed.json").read_text())
    assert markdown(content) in output
    assert [model["name"] for model in content["models"]] == ["one"]
    for model in content["models"]:
        assert model["file"] == "model.pt", "as it was given"
        (only,) = model["rounds"]
        assert only["sentences"] == 50
        assert only["sentences_per_second"] > 0
    assert content["command"].startswith(" ".join(COMMAND))
    assert (content["threads"], content["beam"], content["batch"]) == (1, 5, 64)
    assert {"commit", "versions", "hardware", "date", "load_average_before"} <= content.keys()
