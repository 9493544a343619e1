"""What a Hydra user does with ``configs/``: override, sweep, resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import succeed
from hydra_runs import command

pytestmark = pytest.mark.slow

QUICK = ("common.cpu=true", "dataset.num_workers=0", "optimization.max_update=1")


def test_a_run_has_the_same_folder_alone_and_in_a_sweep(data: Path, tmp_path: Path) -> None:
    """So that the same command goes on with its own checkpoints, and no other's."""
    overrides = [f"task.data={data}", *QUICK]
    succeed(*command("experiment/demo", *overrides, "model.key_dim=8,16", sweep=True), cwd=tmp_path)
    folders = {path.parent.parent.name for path in tmp_path.rglob("checkpoint_last.pt")}
    assert folders == {f"model.key_dim={n},optimization.max_update=1" for n in (8, 16)}
    log = succeed(*command("experiment/demo", *overrides, "model.key_dim=16"), cwd=tmp_path)
    again = tmp_path / "runs/experiment/demo/model.key_dim=16,optimization.max_update=1/checkpoints"
    assert f"Loaded checkpoint {again / 'checkpoint_last.pt'} (epoch 1 @ 1 updates)" in log
