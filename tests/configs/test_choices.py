"""What a Hydra user does with ``configs/``: override, sweep."""

from __future__ import annotations

from pathlib import Path

from commands import succeed
from hydra_runs import TWO_UPDATES, command, logged, tiny


def test_both_methods_start_as_the_same_model(data: Path, tmp_path: Path) -> None:
    overrides = [*TWO_UPDATES, "common.log_format=json", "common.log_interval=1", "model.key_dim=8"]
    methods = ("model=collab,concatenated", "model.attention_scale=embed")
    succeed(*tiny("multi30k", data, *overrides, *methods, sweep=True), cwd=tmp_path)
    first = [logged(tmp_path / job / "hydra_train.log", "train_inner")[0] for job in ("0", "1")]
    assert first[0]["loss"] == first[1]["loss"]


QUICK = ("common.cpu=true", "dataset.num_workers=0", "optimization.max_update=1")


def test_a_run_has_the_same_folder_alone_and_in_a_sweep(data: Path, tmp_path: Path) -> None:
    """So that the same command goes on with its own checkpoints, and no other's."""
    overrides = [f"task.data={data}", *QUICK]
    succeed(*command("demo", *overrides, "model.key_dim=8,16", sweep=True), cwd=tmp_path)
    folders = {path.parent.parent.name for path in tmp_path.rglob("checkpoint_last.pt")}
    assert folders == {f"model.key_dim={n},optimization.max_update=1" for n in (8, 16)}
    log = succeed(*command("demo", *overrides, "model.key_dim=16"), cwd=tmp_path)
    again = tmp_path / "runs/demo/model.key_dim=16,optimization.max_update=1/checkpoints"
    assert f"Loaded checkpoint {again / 'checkpoint_last.pt'} (epoch 1 @ 1 updates)" in log
