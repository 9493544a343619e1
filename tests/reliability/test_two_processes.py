"""Two processes on one machine (gloo): killed and resumed, they end where they would have.

And heads that train in groups have the same groups in both.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import USER_DIR, warm
from commands import run_command as run

from fairseq_compat import checkpoints

from .conftest import SIZES, TRAINING
from .test_kill import assert_same

pytestmark = pytest.mark.slow

TELL_WEIGHTS = Path(__file__).parent / "tell_weights.py"
TELL_GROUPS = Path(__file__).parent / "tell_groups.py"
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
    return (*TORCHRUN, warm() / "python", TELL_WEIGHTS)


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
        assert_same(one[part], other[part], part)


# ---- heads in groups -----------------------------------------------------------------------------

#: Updates, each on all 20 sentences of the validation set: in halves, or in one process.
GROUPED_UPDATES = 6
Groups = dict[int, list[list[int]]]  # by update: the group of each head of each attention


def train_in_groups(
    data: Path, folder: Path, launcher: tuple[object, ...], batch: int, *more: str
) -> dict[int, Groups]:
    """Train without dropout; what each process has told."""
    model = ["--arch=transformer_grouped_heads", *SIZES, "--head-groups=3", "--dropout=0"]
    model += [f"--{side}-attention-heads=8" for side in ("encoder", "decoder")]
    criterion = ["--criterion=label_smoothed_cross_entropy_with_head_groups"]
    options = [*USER_DIR, *model, *TRAINING, *criterion, *more, "--train-subset=valid"]
    options += [f"--batch-size={batch}", f"--max-epoch={GROUPED_UPDATES}", "--disable-validation"]
    command = [*launcher, TELL_GROUPS, data, *options, "--no-epoch-checkpoints"]
    done = run(*command, "--save-dir", folder, **BUFFERED)
    assert done.returncode == 0, done.stderr
    found: dict[int, Groups] = {}
    for line in re.findall(r"^GROUPS (.*)$", done.stdout, re.MULTILINE):
        told = json.loads(line)
        found.setdefault(told["process"], {})[told["update"]] = told["groups"]
    return found


@pytest.fixture(scope="module")
def grouped(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, Groups], Path]:
    """What two processes have told, ten sentences each an update, and their folder."""
    folder = tmp_path_factory.mktemp("grouped")
    launcher = (*TORCHRUN, warm() / "python")
    return train_in_groups(data, folder, launcher, 10, *GLOO), folder


def test_both_have_the_same_groups(grouped: tuple[dict[int, Groups], Path]) -> None:
    """After every update, and in the checkpoint; each would find others in its own sentences."""
    told, folder = grouped
    assert told.keys() == {0, 1}
    assert list(told[0]) == list(range(GROUPED_UPDATES))
    assert told[0] == told[1]
    weights = checkpoints.read(folder / "checkpoint_last.pt")["model"]
    saved = [
        weights[name].argmax(dim=1).tolist() for name in weights if name.endswith(".membership")
    ]
    assert saved == told[0][GROUPED_UPDATES - 1]


def test_groups_are_those_of_all_sentences(
    data: Path, grouped: tuple[dict[int, Groups], Path], tmp_path: Path
) -> None:
    """Inner products of features add up over sentences, so that one process finds the same groups.

    Later updates differ: each process has cosines of its own sentences in its loss.
    """
    alone = train_in_groups(data, tmp_path, ("python",), 20)
    assert list(alone) == [0]
    assert alone[0][0] == grouped[0][0][0]
