"""``hydra/launcher=slurm``: no Slurm here, but a stand-in that runs what is submitted."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from commands import succeed
from hydra_runs import tiny

pytestmark = pytest.mark.slow

pytest.importorskip(
    "hydra_plugins.hydra_submitit_launcher", reason="hydra-submitit-launcher is not installed"
)

STAND_IN = Path(__file__).parent / "slurm_stand_in"
PATH = f"{STAND_IN}{os.pathsep}{os.environ['PATH']}"
SLURM = ("hydra/launcher=slurm", "hydra.launcher.partition=long", "hydra.launcher.timeout_min=90")


def test_a_job_that_is_stopped_resumes(data: Path, tmp_path: Path) -> None:
    """Submitted again by itself, it finds the checkpoint that it has left."""
    last = tmp_path / "0" / "checkpoints" / "checkpoint_last.pt"
    overrides = ["optimization.max_epoch=4", *SLURM, "checkpoint.keep_last_epochs=4"]
    environment = {"SLURM_STAND_IN": str(tmp_path), "SLURM_TIME_IS_UP": str(last)}
    command = tiny("experiment/multi30k", data, *overrides, sweep=True)
    succeed(*command, cwd=tmp_path, PATH=PATH, **environment)
    log = (tmp_path / "log").read_text()
    assert "Exiting gracefully after preemption/timeout" in log
    assert re.search(r"Loaded checkpoint \S+checkpoint_last.pt \(epoch [23] @", log)
    assert (last.parent / "checkpoint4.pt").exists()
