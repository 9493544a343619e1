"""Language models and masked ones through the unmodified fairseq commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from cli.conftest import LM, SHORT
from commands import USER_DIR, succeed

from collab_common import main as cli


@pytest.fixture(scope="module")
def language_model(monolingual: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    succeed(
        "fairseq-train", monolingual, *USER_DIR, *LM, "--arch=transformer_lm_collab", "--key-dim=6",
        *SHORT, "--criterion=cross_entropy", "--save-dir", folder,
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


def test_a_language_model_trains_and_eval_lm_reads_it(
    language_model: Path, monolingual: Path, tmp_path: Path
) -> None:
    evaluate = ["fairseq-eval-lm", monolingual, *USER_DIR, "--path", language_model, "--cpu"]
    output = succeed(*evaluate, "--tokens-per-sample=16")
    perplexity = float(re.search(r"Perplexity: ([\d.]+)", output)[1])
    assert 5 < perplexity < 100  # twelve words and a few symbols, hardly trained
    heads = ["heads", language_model, monolingual, "--subset=test", "--cpu"]
    assert cli.main([str(word) for word in [*heads, "--out", tmp_path]]) == 0
    found = json.loads((tmp_path / "heads.json").read_text())
    assert found["perplexity"] == pytest.approx(perplexity, abs=0.01)


def test_cost_of_a_language_model(language_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Collaborative heads: projections 2 d (K + d) T, scores and context (H K + d) T^2."""
    assert cli.main(["cost", str(language_model), "--length", "10"]) == 0
    *_, row, about = capsys.readouterr().out.splitlines()
    words = len(torch.load(language_model)["model"]["decoder.embed_tokens.weight"])
    per_token = 2 * 16 * (6 + 16) + 2 * 16 * 32 + 16 * words
    found = 10 * per_token + 100 * (4 * 6 + 16)
    cells = [cell.strip() for cell in row.split("|")[4:-1]]
    assert cells == ["24", "64", "-", "-", f"{found:,}"]
    assert about == "multiply-adds: 10 tokens on each side, or in a language model's block"


def test_heads_of_a_language_model(
    language_model: Path, monolingual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads = ["heads", str(language_model), str(monolingual), "--out", str(tmp_path), "--cpu"]
    assert cli.main([*heads, "--example-lines", "1"]) == 0
    output = capsys.readouterr().out
    assert "a language model: no cross-attention, syntax, rare source tokens or relevance" in output
    found = json.loads((tmp_path / "heads.json").read_text())
    assert found["heads"] == {"encoder": [], "decoder": [4], "cross": []}
    applies = {"confidence", "positional", "importance"}
    assert applies <= {name for name, of in found["measures"].items() if of["decoder"]}
    assert not any(of["encoder"] or of["cross"] for of in found["measures"].values())
    (example,) = found["examples"]
    assert len(example["source"]) == len(example["weights"]["decoder"][0][0]) == 16
    assert example["source"][1:] == example["target"][:-1]
    assert "# Heads of" in (tmp_path / "heads.md").read_text()
    assert cli.main([*heads, "--conllu", "trees"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "--conllu: a language model has no encoder" in line


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
    assert "Linear(in_features=64" in re.search(r"\(output_projection\): .*", log)[0]
    assert (tmp_path / "checkpoint_last.pt").exists()
