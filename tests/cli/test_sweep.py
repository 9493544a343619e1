"""``fairseq-collab sweep`` and ``score RUN`` on a tiny corpus: killed, failing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from commands import SETTINGS, preprocess, run_command, succeed, warm, write_copy_task

from collab_common.provenance import commit
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow

CONFIG = """\
# @package _global_
defaults:
  - /base
  - /model: collab
  - _self_
model:
  share_all_embeddings: true
  encoder_embed_dim: 16
  encoder_ffn_embed_dim: 16
  encoder_attention_heads: 2
  encoder_layers: 1
  decoder_embed_dim: 16
  decoder_ffn_embed_dim: 16
  decoder_attention_heads: 2
  decoder_layers: 1
method: small
task: {source_lang: en, target_lang: de}
optimization: {lr: [0.005], max_epoch: 3}
dataset: {max_tokens: 400, num_workers: 0, gen_subset: test}
checkpoint: {keep_last_epochs: 2}
generation: {beam: 2, max_len_b: 10}
common: {cpu: true}
hydra:
  sweeper:
    params:
      model.key_dim: 8,16
"""
RUNS = ("key_dim-8", "key_dim-16")
#: What may differ between two sweeps of the same configuration.
CIRCUMSTANCES = ("command", "commit", "date", "train_seconds", "translate_seconds")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sweep, far from the configurations that it includes."""
    path = tmp_path_factory.mktemp("mine") / "tiny.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small copy task with its untouched references."""
    folder = tmp_path_factory.mktemp("corpus")
    write_copy_task(folder / "text", train=300)
    preprocess(folder / "text", folder / "copy")
    (folder / "copy" / "raw").mkdir()
    shutil.copy(folder / "text" / "test.de", folder / "copy" / "raw")
    return folder / "copy"


def sweep(config: Path, corpus: Path, out: Path, *options: object) -> list[object]:
    return ["fairseq-collab", "sweep", config, "--out", out, f"task.data={corpus}", *options]


def scores(out: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for name in RUNS:
        score = json.loads((out / name / "score.json").read_text())
        found[name] = {key: value for key, value in score.items() if key not in CIRCUMSTANCES}
    return found


@pytest.fixture(scope="module")
def finished(config: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted sweep."""
    out = tmp_path_factory.mktemp("sweep") / "finished"
    report = succeed(*sweep(config, corpus, out))
    assert "2 of 2 runs are finished" in report
    return out


def test_scores_are_complete(finished: Path) -> None:
    found = scores(finished)["key_dim-8"]
    assert (found["method"], found["overrides"]) == ("small", {"model.key_dim": "8"})
    assert (found["key_dim"], found["heads"], found["seed"], found["epochs"]) == (8, 2, 1, 3)
    assert found["averaged"] == ["checkpoint2.pt", "checkpoint3.pt"]
    assert found["checkpoint_rule"] == "mean of last epochs"
    assert found["generation"] == {"beam": 2, "max_len_a": 0.0, "max_len_b": 10}, "as it says"
    assert (found["train_jobs"], found["translate_jobs"], found["train_threads"]) == (1, 1, 1)
    record = json.loads((finished / "key_dim-8" / "score.json").read_text())
    made = ("command", "seed", "hardware", "date", "checkpoint_rule")
    made += ("commit", "trained_at_commit") if commit() else ()  # None outside a clone
    assert all(record[name] for name in made), "how it was made"
    assert record["at_length_limit"]
    said = f"{record['at_length_limit']} of 50 translations"
    assert said in (finished / "key_dim-8" / "train.log").read_text()
    assert record["train_seconds"] >= 0
    assert record["translate_seconds"] > 0
    assert (found["beam"], found["sentences"]) == (2, 50)
    assert found["reference"] == "raw/test.de", "in the data folder, wherever that is"
    assert found["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert scores(finished)["key_dim-16"]["parameters"] > found["parameters"]


def test_killed_twice_it_ends_with_the_same_scores(
    finished: Path, config: Path, corpus: Path, tmp_path: Path
) -> None:
    """Once the sweep alone, whose training lives on, and once the training with it."""
    out = tmp_path / "killed"
    first, second = (out / name for name in RUNS)
    start(sweep(config, corpus, out), until=lambda: (first / "checkpoints").exists()).kill()
    time.sleep(1)  # the orphan goes on
    process = start(sweep(config, corpus, out), until=(second / "checkpoints").exists)
    kill_all(process, out)
    assert not (second / "score.json").exists()
    report = succeed(*sweep(config, corpus, out))
    assert "2 of 2 runs are finished" in report
    assert scores(out) == scores(finished)


def test_patience_lasts_over_a_kill(config: Path, corpus: Path, tmp_path: Path) -> None:
    """Nothing is learnt: the first epoch is the best one, and the fourth the last."""
    options = ["model.key_dim=8", "optimization.lr=[1e-30]", "optimization.max_epoch=9"]
    command = sweep(config, corpus, tmp_path / "out", *options, "checkpoint.patience=3")
    third = tmp_path / "out" / "run" / "checkpoints" / "checkpoint3.pt"
    kill_all(start(command, until=third.exists), tmp_path / "out")
    before = checkpoints.read(third)["extra_state"]["previous_training_time"]
    assert "run: resumes" in succeed(*command)
    score = json.loads((tmp_path / "out" / "run" / "score.json").read_text())
    assert score["train_seconds"] > before > 0, "of both attempts"
    assert (score["epochs"], score["averaged"]) == (4, ["checkpoint3.pt", "checkpoint4.pt"])


def test_a_failed_run_is_reported_and_the_rest_goes_on(
    config: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "failing"
    done = run_command(*sweep(config, corpus, out, "model.key_dim=-1,8", "--jobs", 2))
    assert done.returncode == 1
    assert "1 of 2 runs are finished" in done.stdout
    assert "key_dim is -1" in done.stdout
    assert json.loads((out / "key_dim--1" / "failed.json").read_text())["verdict"] == "failed"
    assert (out / "key_dim-8" / "score.json").exists()


def test_a_dry_run_prints_the_trainings(finished: Path, config: Path, corpus: Path) -> None:
    options = ("model.key_dim=8,4", "--dry-run")
    said = succeed(*sweep(config, corpus, finished, *options), PYTHONHASHSEED="1")  # cold
    first, second = said.splitlines()[-2:]
    assert first == "key_dim-8: finished: model.key_dim=8"
    assert second == "key_dim-4: not started: model.key_dim=4"
    assert not (finished / "key_dim-4").exists()


def start(command: list[object], until: Any) -> subprocess.Popen:
    """Start a command and wait until something is true."""
    name, *rest = map(str, command)
    process = subprocess.Popen(
        [str(warm() / name), *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **SETTINGS},
        # A shell starts what it runs in the background, such as these tests, deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(12_000):
        if until():
            return process
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    process.kill()
    raise AssertionError("it never came so far")


def kill_all(process: subprocess.Popen, out: Path) -> None:
    """SIGKILL for a sweep and what it has started, each in the folder of its run."""
    process.kill()
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # not ours, or ended
            if place.readlink().is_relative_to(out):
                os.kill(int(place.parent.name), signal.SIGKILL)
    process.wait()
