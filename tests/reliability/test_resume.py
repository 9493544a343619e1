"""A resumed training ends where an uninterrupted one ends: patience, plateaus, last update."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import torch
from commands import run_command

from fairseq_compat import checkpoints

from .test_kill import DYING_TRAIN

pytestmark = pytest.mark.slow

#: A loss that never falls: the first epoch is the best one.
STILL = ["--lr=1e-30", "--max-epoch=9"]


def train(args: list[str], folder: Path, *options: str, dies_in_update: int = 0) -> str:
    """Train in ``folder``, and die in the update of this number, if any."""
    moment = ("update", "-", dies_in_update) if dies_in_update else ("never", "-", 0)
    words = [*args, *options, "--save-dir", str(folder)]
    done = run_command("python", DYING_TRAIN, *moment, *words)
    assert done.returncode == (-signal.SIGKILL if dies_in_update else 0), done.stderr
    return done.stdout


def epochs(folder: Path) -> int:
    return max(int(path.stem.removeprefix("checkpoint")) for path in folder.glob("checkpoint?.pt"))


def losses(text: str) -> dict[str, str]:
    """Loss, to the last bit, by number of updates before it."""
    return dict(re.findall(r"^LOSS (\d+) (\S+)", text, re.M))


def rates(text: str) -> dict[int, str]:
    """Learning rate by number of updates."""
    return {
        int(number): rate
        for number, rate in re.findall(r'"num_updates": "(\d+)".*?"lr": "([^"]+)"', text)
    }


def test_patience(train_args: list[str], tmp_path: Path) -> None:
    """Epochs are 10 updates: it dies in the fourth, after two without progress."""
    options = [*STILL, "--patience=3"]
    whole = train(train_args, tmp_path / "whole", *options)
    assert epochs(tmp_path / "whole") == 4
    killed = train(train_args, tmp_path / "killed", *options, dies_in_update=34)
    resumed = train(train_args, tmp_path / "killed", *options)
    assert epochs(tmp_path / "killed") == 4
    assert losses(killed) | losses(resumed) == losses(whole)
    assert not losses(train(train_args, tmp_path / "killed", *options)), "it has ended"
    assert epochs(tmp_path / "killed") == 4
    train(train_args, tmp_path / "killed", *options, "--patience=4")
    assert epochs(tmp_path / "killed") == 5, "with more patience, it resumes"
    tuned = tmp_path / "tuned"
    train(train_args, tuned, *options, f"--finetune-from-model={tmp_path}/whole/checkpoint4.pt")
    assert epochs(tuned) == 4, "other trainings count from the start"


def test_half_precision(train_args: list[str], tmp_path: Path) -> None:
    """The weights go on as they were in single precision, unless the file has others by now."""
    options = ["--bf16", "--max-epoch=3", "--lr=0.01"]
    whole = losses(train(train_args, tmp_path / "whole", *options))
    killed = losses(train(train_args, tmp_path / "killed", *options, dies_in_update=24))
    state = checkpoints.read(tmp_path / "killed" / "checkpoint_last.pt")
    resumed = losses(train(train_args, tmp_path / "killed", *options))
    assert min(map(int, resumed)) == 20
    assert killed | resumed == whole
    for weight in state["model"].values():
        weight.mul_(2 if weight.is_floating_point() else 1)
    doubled = []
    for name in ("ours", "stock"):
        (tmp_path / name).mkdir()
        torch.save(state, tmp_path / name / "checkpoint_last.pt")
        doubled.append(losses(train(train_args, tmp_path / name, *options)))
        state["last_optimizer_state"].pop("exact_weights", None)  # as stock fairseq saves it
    assert doubled[0] == doubled[1] != resumed


def test_files_without_patience_are_those_of_stock(trained: Path) -> None:
    state = checkpoints.read(trained / "checkpoint_last.pt")["extra_state"]
    stock = {"train_iterator", "val_loss", "best", "metrics", "previous_training_time"}
    assert state.keys() == stock


def test_a_rate_that_falls_on_plateaus(train_args: list[str], tmp_path: Path) -> None:
    """It falls after each second epoch without progress."""
    options = ["--lr-scheduler=reduce_lr_on_plateau", "--lr-patience=1", "--lr-threshold=0.9"]
    options += ["--max-epoch=6", "--lr=0.001", "--warmup-updates=0", "--lr-shrink=0.5"]
    whole = rates(train(train_args, tmp_path / "whole", *options))
    assert [whole[10 * epoch] for epoch in range(1, 7)] == [
        *("0.001", "0.001", "0.001"), *("0.0005", "0.0005", "0.00025")
    ]  # fmt: skip
    for number in (24, 34):
        folder = tmp_path / f"killed in {number}"
        killed = rates(train(train_args, folder, *options, dies_in_update=number))
        assert killed | rates(train(train_args, folder, *options)) == whole


def test_the_last_update_is_the_last(train_args: list[str], tmp_path: Path) -> None:
    assert len(losses(train(train_args, tmp_path, "--max-update=13"))) == 13
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    assert not losses(train(train_args, tmp_path, "--max-update=13"))
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    assert losses(train(train_args, tmp_path, "--max-update=14")).keys() == {"13"}


def test_moving_averages_start_from_the_weights(
    train_args: list[str], trained: Path, tmp_path: Path
) -> None:
    """Of a checkpoint without averages."""
    source = trained / "checkpoint_last.pt"
    options = ["--store-ema", f"--finetune-from-model={source}", "--lr=1e-30", "--max-update=1"]
    assert f"moving averages start from the weights of {source}" in train(
        train_args, tmp_path, *options
    )
    expected = checkpoints.read(source)["model"]
    found = checkpoints.read(tmp_path / "checkpoint_last.pt")["extra_state"]["ema"]
    for name in (
        name for name in expected if name.endswith(("embed_tokens.weight", "k_proj.weight"))
    ):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-6)
