"""SIGKILL anywhere, then resume: the same losses and weights as without, to the last digit."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from commands import USER_DIR
from commands import run_command as run

from fairseq_compat import checkpoints

from .conftest import SIZES, TRAINING

pytestmark = pytest.mark.slow

DYING_TRAIN = Path(__file__).parent / "dying_train.py"
SAVES = ["--save-interval-updates=4"]  # at updates 4, 8, 10 (epoch 1), 12, 16, 20 (epoch 2)
TIMES = ("wall", "train_wall", "wps", "ups")

# Where it dies: the moment, the file's name, how many times it passes there before, plus one.
KILLS = {
    "in an update of the second epoch": ("update", "-", 14),
    "in the write of an epoch's checkpoint": ("write", "-", 3),
    "when the copy is complete but not yet checkpoint_last.pt": ("before", "checkpoint_last.pt", 3),
}


def losses(done: CompletedProcess[str]) -> list[tuple[int, str]]:
    """(update, loss in hexadecimal) of every update."""
    return [(int(n), loss) for n, loss in re.findall(r"^LOSS (\d+) (\S+)", done.stdout, re.M)]


def logged(done: CompletedProcess[str], tag: str) -> list[dict[str, Any]]:
    """What the log says about the updates, or epochs, without the times."""
    lines = re.findall(rf"\| {tag} \| (\{{.*\}})$", done.stdout, re.M)
    return [{k: v for k, v in json.loads(line).items() if not k.endswith(TIMES)} for line in lines]


def assert_same(one: Any, other: Any) -> None:
    """Equal to the last bit, at any depth."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.fixture(scope="module")
def train_args(data: Path) -> list[str]:
    """Two epochs of ten updates of a model with collaborative heads."""
    model = ["--arch", "transformer_collab", "--key-dim", "6", *SIZES]
    return [str(data), *map(str, USER_DIR), *model, *TRAINING]


@pytest.fixture(scope="module")
def uninterrupted(
    train_args: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    command = ("python", DYING_TRAIN, "never", "-", 0, *train_args, *SAVES)
    done = run(*command, "--save-dir", folder)
    assert done.returncode == 0, done.stderr
    assert len(losses(done)) == 20
    return done, folder


def test_ctrl_c(train_args: list[str], tmp_path: Path) -> None:
    """One line, which says how to resume."""
    done = run("python3", DYING_TRAIN, "interrupt", "-", 1, *train_args, "--save-dir", tmp_path)
    assert done.returncode == -signal.SIGINT
    assert "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("fairseq-train: interrupted")


@pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS.keys())
def test_killed_and_resumed_is_uninterrupted(
    kill: tuple[str, str, int],
    uninterrupted: tuple[CompletedProcess[str], Path],
    train_args: list[str],
    tmp_path: Path,
) -> None:
    whole, folder = uninterrupted
    rest = [*train_args, *SAVES, "--save-dir", str(tmp_path)]
    killed = run("python", DYING_TRAIN, *kill, *rest)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    saved = list(tmp_path.glob("*.pt"))
    assert all(checkpoints.damage(str(path)) is None for path in saved), saved

    resumed = run("python", DYING_TRAIN, "never", "-", 0, *rest)
    assert resumed.returncode == 0, resumed.stderr
    expected = dict(losses(whole))
    for done in (killed, resumed):
        assert dict(losses(done)).items() <= expected.items()
    assert {n for done in (killed, resumed) for n, _ in losses(done)} == expected.keys()
    assert losses(resumed)[-1][0] == 19
    for tag in ("train_inner", "train", "valid"):
        after = logged(resumed, tag)
        assert after
        assert after == logged(whole, tag)[-len(after) :]

    assert not list(tmp_path.glob("*.partial"))
    one, other = (checkpoints.read(where / "checkpoint_last.pt") for where in (folder, tmp_path))
    for part in ("model", "last_optimizer_state"):
        assert_same(one[part], other[part])
    assert one["extra_state"]["train_iterator"] == other["extra_state"]["train_iterator"]
    assert one["extra_state"]["best"] == other["extra_state"]["best"]
    assert {path.name for path in folder.iterdir()} == {path.name for path in tmp_path.iterdir()}
