"""Language models from training in groups to fine-tuning, through the real commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli.conftest import SHORT
from commands import USER_DIR, run_command, succeed, train_log

from fairseq_collab.commands import vote as command_vote
from fairseq_collab.criterions.losses import GROUPS_LOGGED

LM = [
    "--task=language_modeling", "--tokens-per-sample=16", "--decoder-layers=2",
    "--decoder-embed-dim=16", "--decoder-attention-heads=4",
]  # fmt: skip
FFN = "--decoder-ffn-embed-dim=32"
ADAPTIVE = [
    "--adaptive-input", "--adaptive-input-cutoff=8", "--adaptive-softmax-cutoff=8",
    "--tie-adaptive-weights", "--tie-adaptive-proj",
]  # fmt: skip


@pytest.fixture(scope="module")
def grouped(monolingual: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in two groups with adaptive inputs and outputs, after three updates."""
    folder = tmp_path_factory.mktemp("grouped")
    log = succeed(
        "fairseq-train", monolingual, *USER_DIR, *LM, FFN, *ADAPTIVE, *SHORT,
        "--arch=transformer_lm_grouped_heads", "--head-groups=2", "--save-dir", folder,
        "--criterion=adaptive_loss_with_head_groups", "--ddp-backend=legacy_ddp",
    )  # fmt: skip
    entries = train_log(log)
    assert len(entries) == 3
    for entry in entries:
        assert set(GROUPS_LOGGED) <= entry.keys()
        assert 0 < float(entry["loss"]) < 10
    return folder / "checkpoint_last.pt"


def test_vote_prune_and_evaluate(monolingual: Path, grouped: Path, tmp_path: Path) -> None:
    file = tmp_path / "votes.json"
    command = [str(grouped), str(monolingual), "--subset=valid", "--cpu", f"--out={file}"]
    assert command_vote.main(command) == 0
    votes = json.loads(file.read_text())
    assert (votes["votes"]["encoder"], votes["votes"]["cross"]) == ([], [])
    assert [[sum(row) for row in layer] for layer in votes["votes"]["decoder"]] == (
        [[votes["batches"]] * 2] * 2
    )
    pruned = tmp_path / "pruned.pt"
    command = [str(grouped), "--votes", str(file), "--out", str(pruned)]
    done = run_command("fairseq-collab", "prune", *command)
    assert done.returncode == 0, done.stderr
    heads, last = done.stdout.splitlines()[-2:]
    assert heads.startswith("decoder: 4 of 8 heads")
    assert "--arch transformer_lm_headsize_n --heads-in-decoder 2,2 " in last
    evaluate = ["fairseq-eval-lm", monolingual, *USER_DIR, "--path", pruned, "--cpu"]
    output = succeed(*evaluate, "--tokens-per-sample=16")
    assert 5 < float(re.search(r"Perplexity: ([\d.]+)", output)[1]) < 100
