"""A generated corpus, and the real commands run on it in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import preprocess, sizes, succeed, write_copy_task


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that fairseq-preprocess writes: 200 pairs to train on, 50 to validate."""
    folder = tmp_path_factory.mktemp("data")
    write_copy_task(folder / "text", words=30, train=200)
    return preprocess(folder / "text", folder / "bin")


SIZES = [*sizes(16, 32, heads=2), "--dropout=0.1"]

TRAINING = ["--optimizer=adam", "--lr=0.01", "--lr-scheduler=inverse_sqrt", "--warmup-updates=4"]
TRAINING += ["--clip-norm=1", "--batch-size=20", "--max-epoch=2", "--log-interval=1"]
TRAINING += ["--required-batch-size-multiple=1"]
TRAINING += ["--log-format=json", "--no-progress-bar", "--cpu", "--num-workers=0", "--seed=3"]


@pytest.fixture(scope="session")
def train_args(data: Path) -> list[str]:
    """Two epochs of ten updates of fairseq's own transformer."""
    return [str(data), "--arch", "transformer", *SIZES, *TRAINING]


@pytest.fixture(scope="session")
def trained(train_args: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of checkpoints of a finished training; not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    succeed("fairseq-train", *train_args, "--save-dir", folder)
    return folder
