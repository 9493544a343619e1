"""No job of ``fairseq-hydra-train -m`` meets the state of the one before it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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
KEY_DIMS = (2, 8)


@pytest.fixture(scope="module")
def sweep(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two jobs in one call."""
    folder = tmp_path_factory.mktemp("sweep")
    dims = f"model.key_dim={','.join(map(str, KEY_DIMS))}"
    succeed(*tiny("multi30k", data, *VALIDATED, dims, sweep=True), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same jobs, each in a call of its own."""
    folder = tmp_path_factory.mktemp("alone")
    for job, key_dim in enumerate(KEY_DIMS):
        (folder / str(job)).mkdir()
        command = tiny("multi30k", data, *VALIDATED, f"model.key_dim={key_dim}")
        succeed(*command, cwd=folder / str(job))
    return folder


def checkpoint(folder: Path, job: int) -> dict[str, Any]:
    return checkpoints.read(folder / str(job) / "checkpoints" / "checkpoint_last.pt")


@pytest.mark.parametrize("job", [0, 1])
def test_a_job_is_what_it_is_alone(job: int, sweep: Path, alone: Path) -> None:
    """Losses, best loss and weights to the last digit; and its files."""
    for kind in ("train_inner", "valid"):
        losses = [logged(folder / str(job) / "hydra_train.log", kind) for folder in (sweep, alone)]
        assert losses[0] == losses[1]
        assert len(losses[0]) >= 3
    one, other = checkpoint(sweep, job), checkpoint(alone, job)
    for state in ("best", "val_loss"):
        assert one["extra_state"][state] == other["extra_state"][state]
    assert one["model"].keys() == other["model"].keys()
    for name, weights in one["model"].items():
        assert torch.equal(weights, other["model"][name]), name
    files = [{*os.listdir(folder / str(job) / "checkpoints")} for folder in (sweep, alone)]
    assert files[0] == files[1]
    assert {"checkpoint_best.pt", "checkpoint_last.pt", "checkpoint3.pt"} <= files[0]
