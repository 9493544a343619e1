"""Language models and masked ones through the unmodified fairseq commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.conftest import SHORT
from commands import USER_DIR, refuse, succeed, train_log

SIZES = ("layers=1", "embed-dim=16", "ffn-embed-dim=32", "attention-heads=4")
LM = [
    "--task=language_modeling",
    *(f"--decoder-{size}" for size in SIZES),
    "--tokens-per-sample=16",
]
MASKED = ["--task=masked_lm", *(f"--encoder-{size}" for size in SIZES), "--tokens-per-sample=16"]
TRAIN = [o for o in SHORT if not o.startswith("--criterion")]


@pytest.fixture(scope="module")
def language_model(monolingual: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    succeed(
        "fairseq-train", monolingual, *USER_DIR, *LM, "--arch=transformer_lm_collab", "--key-dim=6",
        *TRAIN, "--criterion=cross_entropy", "--save-dir", folder,
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


def test_a_language_model_trains_and_eval_lm_reads_it(
    language_model: Path, monolingual: Path
) -> None:
    evaluate = ["fairseq-eval-lm", monolingual, *USER_DIR, "--path", language_model, "--cpu"]
    output = succeed(*evaluate, "--tokens-per-sample=16")
    perplexity = float(re.search(r"Perplexity: ([\d.]+)", output)[1])
    assert 5 < perplexity < 100  # twelve words and a few symbols, hardly trained


def test_eval_lm_refuses_another_number_of_heads(language_model: Path, monolingual: Path) -> None:
    line = refuse(
        "fairseq-eval-lm", monolingual, *USER_DIR, "--path", language_model, "--cpu",
        "--model-overrides", "{'decoder_attention_heads': 2}",
    )  # fmt: skip
    assert "decoder.layers.0.self_attn: heads is 4 in it, 2 here" in line


def test_adaptive_inputs_and_softmax_train(monolingual: Path, tmp_path: Path) -> None:
    adaptive = ["--adaptive-input", "--adaptive-input-cutoff=8", "--adaptive-softmax-cutoff=8"]
    log = succeed(
        "fairseq-train", monolingual, *USER_DIR, *LM, "--arch=transformer_lm_headsize_n",
        "--head-size=3", *adaptive, "--tie-adaptive-weights", *TRAIN, "--criterion=adaptive_loss",
        "--ddp-backend=legacy_ddp",
        "--save-dir", tmp_path,
    )  # fmt: skip
    assert all(0 < float(entry["loss"]) < 10 for entry in train_log(log))
    checkpoint = tmp_path / "checkpoint_last.pt"
    evaluate = ["fairseq-eval-lm", monolingual, *USER_DIR, "--path", checkpoint, "--cpu"]
    # Without the length fairseq takes blocks of 1024, and passes over all of them as too long.
    output = succeed(*evaluate, "--tokens-per-sample=16")
    assert 5 < float(re.search(r"Perplexity: ([\d.]+)", output)[1]) < 100


def test_a_masked_language_model_trains_and_resumes(monolingual: Path, tmp_path: Path) -> None:
    train = [
        "fairseq-train", monolingual, *USER_DIR, *MASKED, "--arch=roberta_collab", "--key-dim=6",
        *TRAIN, "--criterion=masked_lm", "--save-dir", tmp_path,
    ]  # fmt: skip
    log = succeed(*train)
    assert all(0 < float(entry["loss"]) < 10 for entry in train_log(log))
    again = succeed(*train, "--max-update=5")
    assert [entry["num_updates"] for entry in train_log(again)] == ["4", "5"]
    line = refuse(*train, "--max-update=7", "--encoder-attention-heads=2")
    assert "sentence_encoder.layers.0.self_attn: heads is 4 in it, 2 here" in line


def test_hydra_trains_a_language_model(monolingual: Path, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "lm.yaml").write_text(
        f"""# @package _group_
common: {{cpu: true, user_dir: {USER_DIR[1]}, log_format: json, log_interval: 1}}
task: {{_name: language_modeling, data: {monolingual}, tokens_per_sample: 16}}
criterion: cross_entropy
dataset: {{max_tokens: 200, disable_validation: true, num_workers: 0}}
optimizer: {{_name: adam}}
lr_scheduler: fixed
optimization: {{lr: [0.001], max_update: 2}}
checkpoint: {{save_dir: {tmp_path}}}
model: {{_name: transformer_lm_collab_gpt2_tiny, key_dim: 8}}
"""
    )
    log = succeed(
        "fairseq-hydra-train", "--config-dir", tmp_path / "configs", "--config-name", "lm",
        cwd=tmp_path,
    )  # fmt: skip
    assert "(output_projection): Linear(in_features=64" in log
    assert (tmp_path / "checkpoint_last.pt").exists()
