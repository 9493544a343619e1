"""recipes/wmt14_en_{de,fr}.sh, the training that they ask for is the paper's."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
from commands import REPOSITORY
from data.recipe_runs import environment

from collab_lab.runs.run import flat
from collab_lab.runs.sweep import plan

pytestmark = pytest.mark.slow


def run_of(recipe: str, *options: str) -> dict[str, Any]:
    """The configuration, by dotted names, of the first run of a dry run."""
    told = subprocess.run(
        ["bash", f"recipes/{recipe}.sh", "--dry-run", "--out", "/o", *options],
        capture_output=True,
        text=True,
        check=True,
        env=environment(VIRTUAL_ENV="/nowhere"),
    ).stdout.replace("\\\n", " ")
    lines = [shlex.split(line) for line in told.splitlines() if not line.startswith(("=", "#"))]
    sweep = next(words for words in lines if words[:2] == ["fairseq-collab", "sweep"])
    assert sweep[3:5] == ["--out", "/o/runs"]
    (job,) = plan(REPOSITORY / sweep[2], sweep[5:])
    return flat(job.config)


#: arXiv 2006.16362's README; below it what it leaves open.
EN_DE = {
    "optimizer._name": "adam",
    "optimizer.adam_betas": "(0.9, 0.98)",
    "optimization.clip_norm": 0.0,
    "optimization.lr": [0.0007],
    "optimization.stop_min_lr": 1e-9,  # fairseq 0.12.2's name of --min-lr
    "criterion._name": "label_smoothed_cross_entropy",
    "criterion.label_smoothing": 0.1,
    "common.fp16": True,
    "lr_scheduler._name": "inverse_sqrt",
    "lr_scheduler.warmup_updates": 4000,
    "dataset.max_tokens": 3584,
    "model._name": "transformer_collab",
    "model.dropout": 0.1,
    "model.share_all_embeddings": True,
    "model.encoder_embed_dim": 512,
    "model.decoder_ffn_embed_dim": 2048,
    "model.key_dim": 128,
    "model.mixing_init": "xavier",
    "model.attention_scale": "embed",
    "model.value_init": "fork",
    # ours
    "optimization.max_update": 100000,
    "checkpoint.keep_last_epochs": 5,
    "generation.beam": 4,
    "generation.lenpen": 0.6,
    "task.data": "/o/data",
}
#: arXiv 2305.14380 for WMT14 English-French, 2 groups of 8 heads; below it its released code's.
EN_FR = {
    "task.target_lang": "fr",
    "optimizer.adam_betas": "(0.9, 0.98)",
    "optimization.lr": [0.0005],
    "criterion.label_smoothing": 0.1,
    "lr_scheduler.warmup_updates": 4000,
    "model._name": "transformer_grouped_heads",
    "model.encoder_embed_dim": 512,
    "model.encoder_attention_heads": 8,
    "model.dropout": 0.3,
    "model.share_decoder_input_output_embed": True,
    "model.head_groups": 2,
    "model.group_feature": "value",
    "criterion.group_alpha": 0.3,
    "criterion.group_beta": 0.3,
    "generation.beam": 4,
    "generation.lenpen": 0.6,
    # of the code
    "dataset.max_tokens": 12288,
    "checkpoint.patience": 9,
}


@pytest.mark.parametrize(
    ("recipe", "options", "gpus", "freq", "stated"),
    [
        ("wmt14_en_de", (), 1, 8, EN_DE),
        ("wmt14_en_de", (), 8, 1, EN_DE),
        ("wmt14_en_fr", ("--method", "grouped_pruned"), 2, 4, EN_FR),
    ],
)
def test_training_is_the_papers(
    recipe: str, options: tuple[str, ...], gpus: int, freq: int, stated: dict[str, Any]
) -> None:
    """A batch is as large on any number of GPUs."""
    found = run_of(recipe, *options, "--gpus", str(gpus))
    assert {name: found[name] for name in stated} == stated
    assert found["optimization.update_freq"] == [freq]
    assert found["distributed_training.distributed_world_size"] == gpus
