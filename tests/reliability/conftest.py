"""A generated corpus, and the real commands run on it in processes of their own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from commands import sizes, succeed


def write_corpus(folder: Path) -> None:
    """200 training pairs over 30 words; the translation is the reversed sentence."""
    chance = random.Random(0)
    source = [f"w{i}" for i in range(30)]
    target = {word: f"t{i}" for i, word in enumerate(source)}
    for split, size in (("train", 200), ("valid", 20), ("test", 10)):
        lines = [chance.choices(source, k=chance.randint(3, 9)) for _ in range(size)]
        english = "".join(" ".join(line) + "\n" for line in lines)
        german = "".join(" ".join(target[word] for word in line[::-1]) + "\n" for line in lines)
        (folder / f"{split}.en").write_text(english)
        (folder / f"{split}.de").write_text(german)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that fairseq-preprocess writes."""
    raw, binary = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("data") / "bin"
    write_corpus(raw)
    splits = [f"--{split}pref={raw / split}" for split in ("train", "valid", "test")]
    languages = ("--source-lang", "en", "--target-lang", "de")
    succeed("fairseq-preprocess", *languages, *splits, "--destdir", binary)
    return binary


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
