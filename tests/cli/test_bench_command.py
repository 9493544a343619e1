"""``fairseq-collab bench`` in a subprocess, at its smallest; no test looks at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import refuse, succeed

from fairseq_collab.bench import memory
from fairseq_collab.bench.models import STOCK

pytestmark = pytest.mark.slow

TINY = ("fairseq-collab", "bench", "--presets", "tiny", "--quick", "--threads", 1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the parts that need few processes."""
    out = tmp_path_factory.mktemp("bench") / "bench.json"
    succeed(*TINY, "--only", "train,grouped,counters", "--out", out)
    return out


def test_a_run(finished: Path) -> None:
    run = json.loads(finished.read_text())
    assert finished.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert {record["part"] for record in run["records"]} == {"train", "grouped", "counters"}
    for record in run["records"]:
        if record["part"] != "counters":
            assert 0 < record["low"] <= record["ratio"] <= record["high"]
            assert record["pairs"] >= 2
    assert run["commit"]
    assert run["versions"]["torch"]
    assert run["hardware"].endswith("1 thread a training")


def test_key_cache_of_an_eighth(finished: Path) -> None:
    records = json.loads(finished.read_text())["records"]
    keys = {r["model"]: r["cache_self_keys"] for r in records if r["part"] == "counters"}
    assert keys[STOCK] == 8 * keys["transformer_collab K=d/8"]


def test_report_of_two_runs(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.md"
    succeed("fairseq-collab", "bench", "--report", finished, finished, "--out", out)
    page = out.read_text()
    assert "| run 1 | run 2 |" in page
    assert "| GPU |" in page
    assert "| not run |" in page
    assert "## Heads in groups" in page
    assert "## Counters" in page
    assert (tmp_path / "speed.png").exists()


def test_generate_with_trained_models(data: Path, trained: Path, tmp_path: Path) -> None:
    """Natural lengths, both in memory and by the real fairseq-generate."""
    out = tmp_path / "bench.json"
    printed = succeed(
        *(*TINY, "--only", "generate", "--data", data, "--collab-checkpoint", trained),
        *("--out", out),
    )
    cases = {r["case"] for r in json.loads(out.read_text())["records"] if r["preset"] == "trained"}
    assert {
        "natural lengths, beam 5, batch 64",
        "fairseq-generate, its own clock",
        "fairseq-generate, start to end",
    } == cases
    assert "transformer_collab K=d/4" in printed


def test_memory(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    succeed(*TINY, "--only", "memory", "--out", out)
    records = json.loads(out.read_text())["records"]
    assert [record["model"] for record in records] == memory.models("tiny")
    assert all(record["peak_bytes"] >= record["before_bytes"] > 0 for record in records)
    assert not out.with_suffix(".png").exists()


def test_a_checkpoint_of_another_kind(data: Path, trained: Path, tmp_path: Path) -> None:
    """The worker's refusal becomes the command's."""
    options = ("--only", "generate", "--data", data, "--checkpoint", trained)
    message = refuse(*TINY, *options, cwd=tmp_path)
    assert "is the checkpoint of a transformer_collab; give one of fairseq's transformer" in message
