"""Two processes on one machine (gloo): killed and resumed, they end where they would have.

And heads that train in groups have the same groups in both.
"""

from __future__ import annotations

import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from commands import USER_DIR, warm
from commands import run_command as run

from fairseq_compat import checkpoints

from .conftest import SIZES, TRAINING
from .test_kill import DYING_TRAIN, assert_same

pytestmark = pytest.mark.slow

TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node=2", "--no-python")
# Unbuffered, a print comes in pieces, which mix with those of the other process.
BUFFERED = {"PYTHONUNBUFFERED": ""}
GLOO = ["--distributed-backend=gloo", "--ddp-backend=legacy_ddp"]
NEVER = ("never", "-", 0)
IN_EPOCH_2 = ("update", "-", 8)  # an epoch has five updates


@pytest.fixture(scope="module")
def train_args(data: Path) -> list[str]:
    """Two epochs of five updates, each of 20 sentences in both processes."""
    model = ["--arch", "transformer_collab", "--key-dim", "6", *SIZES]
    return [str(data), *map(str, USER_DIR), *model, *TRAINING, *GLOO]


@pytest.fixture(scope="module")
def uninterrupted(
    train_args: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = run(*train(), *NEVER, *train_args, "--save-dir", folder, **BUFFERED)
    assert done.returncode == 0, done.stderr
    return done, folder


def train() -> tuple[object, ...]:
    """The command of two processes that say what their weights are."""
    return (*TORCHRUN, warm() / "python", DYING_TRAIN)


def losses(done: CompletedProcess[str]) -> dict[int, list[str]]:
    """The losses of both processes, in hexadecimal, by update."""
    found: dict[int, list[str]] = {}
    for number, loss in re.findall(r"LOSS (\d+) (-?0x[\da-f.]+p[+-]\d+)", done.stdout):
        found.setdefault(int(number), []).append(loss)
    return {number: sorted(pair) for number, pair in found.items()}


def weights(done: CompletedProcess[str]) -> list[str]:
    """The hashes that both processes have told."""
    return re.findall(r"WEIGHTS ([\da-f]{64})", done.stdout)


def test_both_have_the_same_weights(uninterrupted: tuple[CompletedProcess[str], Path]) -> None:
    """So that one checkpoint is enough, although they see different sentences."""
    done, _ = uninterrupted
    one, other = weights(done)
    assert one == other
    pairs = losses(done)
    assert list(pairs) == list(range(10))
    assert {n: pair for n, pair in pairs.items() if len(set(pair)) != 2} == {}


def test_killed_and_resumed_is_uninterrupted(
    train_args: list[str], uninterrupted: tuple[CompletedProcess[str], Path], tmp_path: Path
) -> None:
    whole, folder = uninterrupted
    killed = run(*train(), *IN_EPOCH_2, *train_args, "--save-dir", tmp_path, **BUFFERED)
    assert killed.returncode != 0
    assert losses(killed).keys() <= set(range(8))
    resumed = run(*train(), *NEVER, *train_args, "--save-dir", tmp_path, **BUFFERED)
    assert resumed.returncode == 0, resumed.stderr
    assert losses(resumed) == {n: pair for n, pair in losses(whole).items() if n >= 5}
    assert weights(resumed) == weights(whole)
    one, other = (checkpoints.read(where / "checkpoint_last.pt") for where in (folder, tmp_path))
    for part in ("model", "last_optimizer_state"):
        assert_same(one[part], other[part])


# ---- heads in groups -----------------------------------------------------------------------------


def train_in_groups(
    data: Path, folder: Path, launcher: tuple[object, ...], batch: int, *more: str
) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The hashes after an update on the 50 validation sentences, and each attention's groups."""
    model = ["--arch=transformer_grouped_heads", *SIZES, "--head-groups=3", "--dropout=0"]
    model += [f"--{side}-attention-heads=8" for side in ("encoder", "decoder")]
    criterion = ["--criterion=label_smoothed_cross_entropy_with_head_groups"]
    options = [*USER_DIR, *model, *TRAINING, *criterion, *more, "--train-subset=valid"]
    options += [f"--batch-size={batch}", "--max-epoch=1", "--disable-validation"]
    command = [*launcher, DYING_TRAIN, *NEVER, data, *options, "--save-dir", folder]
    done = run(*command, **BUFFERED)
    assert done.returncode == 0, done.stderr
    saved = checkpoints.read(folder / "checkpoint_last.pt")["model"]
    return weights(done), {name: saved[name] for name in saved if name.endswith(".membership")}


def test_groups_are_those_of_all_sentences(data: Path, tmp_path: Path) -> None:
    """In both processes, and as in one: inner products of features add up over sentences."""
    launcher = (*TORCHRUN, warm() / "python")
    (one, other), together = train_in_groups(data, tmp_path / "two", launcher, 25, *GLOO)
    assert one == other
    _, alone = train_in_groups(data, tmp_path / "one", ("python",), 50)
    assert len(alone) == 3
    assert_same(together, alone)
