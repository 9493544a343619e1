"""A copy task that stands in for every corpus."""

from __future__ import annotations

from pathlib import Path

import hydra
import pytest
from commands import preprocess, preprocess_english, write_copy_task

if hydra.__version__.startswith("1.0."):
    collect_ignore_glob = ["test_*.py"]  # configs/ needs the defaults lists of Hydra 1.1 and later


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy task, binarised."""
    folder = tmp_path_factory.mktemp("copy")
    write_copy_task(folder / "text", train=400)
    return preprocess(folder / "text", folder / "bin")


@pytest.fixture(scope="session")
def monolingual(data: Path) -> Path:
    """One side of it, for language models."""
    return preprocess_english(data.parent / "text", data.parent / "monolingual")
