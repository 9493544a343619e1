"""``fairseq-collab bench`` at its smallest; no test looks at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collab_common.errors import UserError
from fairseq_collab.bench import engines, memory, report
from fairseq_collab.bench.models import STOCK
from fairseq_collab.bench.run import run as whole_run
from fairseq_collab.bench.settings import Settings
from fairseq_collab.commands import bench
from fairseq_collab.kernels import onednn

pytestmark = pytest.mark.usefixtures("warm_children")

TINY = ("--presets", "tiny", "--quick", "--threads", 1)


def run(out: Path, *options: object) -> dict[str, Any]:
    """The JSON that the command writes."""
    assert bench.main([*map(str, (*TINY, *options, "--out", out))]) == 0
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of parts that are measured in this process."""
    out = tmp_path_factory.mktemp("bench") / "bench.json"
    run(out, "--only", "alone,train,counters")
    return out


def test_a_run(finished: Path) -> None:
    content = json.loads(finished.read_text())
    assert finished.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    parts = {record["part"] for record in content["records"]}
    assert parts == {"alone", "train", "counters"}
    for record in content["records"]:
        if record["part"] != "counters":
            assert 0 < record["low"] <= record["ratio"] <= record["high"]
            assert record["pairs"] >= 2
            assert record["work"] / record["first_seconds"] > 0
    assert content["commit"]
    assert content["versions"]["torch"]
    assert content["hardware"].endswith("1 thread a training")
    assert content["settings"]["presets"] == ["tiny"]


def test_key_cache_of_an_eighth(finished: Path) -> None:
    records = json.loads(finished.read_text())["records"]
    keys = {r["model"]: r["cache_self_keys"] for r in records if r["part"] == "counters"}
    assert keys[STOCK] == 8 * keys["transformer_collab K=d/8"]


def test_report_of_two_runs(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.md"
    assert bench.main(["--report", str(finished), str(finished), "--out", str(out)]) == 0
    page = out.read_text()
    assert "| run 1 | run 2 |" in page
    assert "![ratios](speed.png)" in page
    assert "<summary>Counters</summary>" in page
    assert f"made by `fairseq-collab bench --report {finished}" in page
    assert (tmp_path / "speed.png").exists()


@pytest.mark.slow
def test_generate_with_trained_models(data: Path, ending: Path) -> None:
    """Natural lengths, both in memory and by the real fairseq-generate; no random models."""
    checkpoint = {"data": str(data), "collab_checkpoint": str(ending)}
    settings = Settings(presets=(), quick=True, threads=1, **checkpoint)
    records = whole_run(settings, ["generate"], "bench")["records"]
    assert {r["case"] for r in records} == {
        "natural lengths, beam 5, batch 64",
        "fairseq-generate, its own clock",
        "fairseq-generate, start to end",
    }
    assert {r["model"] for r in records} == {"transformer_collab K=d/4"}


@pytest.mark.slow
def test_engines_with_a_trained_model(
    data: Path, ending: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Natural lengths: CTranslate2 nearly has fairseq's words; and the page of such a run."""
    monkeypatch.setattr(onednn, "is_intel", lambda: False)
    monkeypatch.setattr(onednn, "int8_instructions", lambda: ["amx_int8"])
    out = tmp_path / "engines.json"
    options = ["--engines", str(ending), "--data", str(data), "--presets", "tiny"]
    monkeypatch.setattr(engines, "RANDOM", engines.RANDOM[1:])
    content = run(out, *options)
    records = content["records"]
    trained = {r["engine"]: r for r in records if r["preset"] == "trained"}
    ours = ["ours", "ours, torch's library", "ours, int8"]
    assert list(trained) == [STOCK, *ours, *engines.CTRANSLATE2]
    assert [r["engine"] for r in records if r["preset"] == "tiny"] == list(trained)
    assert {r["pair"] for r in records} == {"transformer_collab K=d/4"}
    for record in trained.values():
        assert (record["times_of_fastest"] == 1) == (record["fastest"] == record["model"])
        assert 0 < record["bleu"] <= 100
    for name in (STOCK, *ours[:2]):
        assert (trained[name]["same"], trained[name]["bleu"]) == (1, trained[STOCK]["bleu"]), name
    # It ends its search otherwise, which shows where a model is hardly trained.
    assert trained["CTranslate2 float32"]["same"] > 0.8
    assert content["versions"]["ctranslate2"]
    page = report.markdown("bench.md.j2", runs=[content])
    assert "| model " in page
    assert " CTranslate2 int8 |" in page
    assert "how many translations are fairseq's word for word" in page
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own; of a preset that it does not know, its last line."""
    monkeypatch.setattr(memory, "MODELS", memory.MODELS[:1])
    out = tmp_path / "bench.json"
    (record,) = run(out, "--only", "memory")["records"]
    assert record["model"] == STOCK
    assert record["peak_bytes"] >= record["before_bytes"] > 0
    assert not out.with_suffix(".png").exists()
    with pytest.raises(UserError, match="benchmark of memory: KeyError: 'huge'"):
        next(memory.run(Settings(presets=("huge",), threads=1)))


def test_a_checkpoint_of_another_kind(data: Path, trained: Path, tmp_path: Path) -> None:
    told = "is the checkpoint of a transformer_collab; give one of fairseq's transformer"
    with pytest.raises(UserError, match=told):
        run(tmp_path / "x.json", "--only", "generate", "--data", data, "--checkpoint", trained)
    assert not (tmp_path / "x.json").exists()
