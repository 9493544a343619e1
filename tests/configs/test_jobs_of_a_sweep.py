"""No job of ``fairseq-hydra-train -m`` meets the state of the one before it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from commands import succeed
from hydra_runs import logged, tiny

from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow

# fairseq keeps the best loss, and how long ago it was reached, where the next job finds it.
VALIDATED = (
    "optimization.max_epoch=3",
    "optimization.lr=[0.02]",
    "lr_scheduler.warmup_updates=10",
    "checkpoint.patience=2",
    "common.log_format=json",
    "common.log_interval=1",
)


def test_the_second_job_is_what_it_is_alone(data: Path, tmp_path: Path) -> None:
    """Losses, best loss and weights to the last digit; and its files."""
    sweep, alone = tmp_path / "sweep", tmp_path / "alone"
    for folder in (sweep, alone):
        folder.mkdir()
    succeed(*tiny("multi30k", data, *VALIDATED, "model.key_dim=2,8", sweep=True), cwd=sweep)
    succeed(*tiny("multi30k", data, *VALIDATED, "model.key_dim=8"), cwd=alone)
    for kind in ("train_inner", "valid"):
        ours, theirs = (logged(one / "hydra_train.log", kind) for one in (sweep / "1", alone))
        assert ours == theirs
        assert len(ours) >= 3
    ours, theirs = (one / "checkpoints" for one in (sweep / "1", alone))
    assert {*os.listdir(ours)} == {*os.listdir(theirs)}
    first, one, other = (
        checkpoints.read(folder / "checkpoint_last.pt")
        for folder in (sweep / "0" / "checkpoints", ours, theirs)
    )
    best = [found["extra_state"]["best"] for found in (first, one, other)]
    assert best[0] < best[1] == best[2], "the first job's would be inherited"
    assert one["extra_state"]["val_loss"] == other["extra_state"]["val_loss"]
    assert one["model"].keys() == other["model"].keys()
    for name, weights in one["model"].items():
        assert torch.equal(weights, other["model"][name]), name
