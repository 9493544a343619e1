"""A copy task, and a small collaborative model trained on it through the real commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import USER_DIR, preprocess, preprocess_english, sizes, succeed, write_copy_task

SIZES = sizes(32, 64)
MODEL = ["--arch=transformer_collab", *SIZES, "--key-dim=8", "--share-all-embeddings"]
OPTIMISER = [
    "--optimizer=adam", "--lr=0.005", "--lr-scheduler=inverse_sqrt", "--warmup-updates=100",
    "--clip-norm=1", "--dropout=0", "--criterion=label_smoothed_cross_entropy", "--seed=1",
    "--cpu", "--num-workers=0", "--log-format=json", "--log-interval=1",
]  # fmt: skip
#: Enough that the end of a translation is learnt, which is hundreds of words long before.
ENDING = [
    *OPTIMISER, "--lr=0.01", "--warmup-updates=20", "--max-tokens=500", "--max-update=60",
    "--disable-validation", "--no-epoch-checkpoints",
]  # fmt: skip
SHORT = [*OPTIMISER, "--max-tokens=200", "--max-update=3", "--disable-validation"]
#: One layer each: for language models and masked ones.
LM_SIZES = ("layers=1", "embed-dim=16", "ffn-embed-dim=32", "attention-heads=4")
LM = [
    "--task=language_modeling", *(f"--decoder-{size}" for size in LM_SIZES),
    "--tokens-per-sample=16",
]  # fmt: skip


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy task, binarised."""
    folder = tmp_path_factory.mktemp("copy")
    write_copy_task(folder / "text")
    return preprocess(folder / "text", folder / "bin")


@pytest.fixture(scope="session")
def corpus(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with its untouched references."""
    folder = tmp_path_factory.mktemp("corpus") / "copy"
    shutil.copytree(data, folder)
    shutil.copytree(data.parent / "text", folder / "raw")
    return folder


@pytest.fixture(scope="session")
def monolingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One side of the copy task, binarised."""
    folder = tmp_path_factory.mktemp("monolingual")
    write_copy_task(folder / "text", train=300)
    return preprocess_english(folder / "text", folder / "bin")


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after three updates: enough for tests that only load it."""
    folder = tmp_path_factory.mktemp("trained")
    succeed("fairseq-train", data, *USER_DIR, *MODEL, *SHORT, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="session")
def ordinary_lm(monolingual: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with heads of the usual size, after three updates."""
    folder = tmp_path_factory.mktemp("ordinary-lm")
    model = [*LM, "--arch=transformer_lm_headsize_n", *SHORT, "--criterion=cross_entropy"]
    succeed("fairseq-train", monolingual, *USER_DIR, *model, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="session")
def stock(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of fairseq's own transformer, for tests that translate."""
    folder = tmp_path_factory.mktemp("stock")
    short = [f"--max-{side}-positions=32" for side in ("source", "target")]  # as translations are
    model = ["--arch=transformer", *SIZES, *short, "--share-all-embeddings"]
    succeed("fairseq-train", data, *model, *ENDING, "--save-dir", folder)
    return folder / "checkpoint_last.pt"
