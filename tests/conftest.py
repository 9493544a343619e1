"""Fixtures that all tiers share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import pytest

REPOSITORY = Path(__file__).parent.parent

# There is a worker a core. Before torch is imported, which reads it then.
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    """Workers share one server of warm commands; as there, nothing waits for the disk."""
    os.fsync = lambda descriptor: None
    if config.getoption("numprocesses", None) and commands.WARM not in os.environ:
        os.environ[commands.WARM] = str(commands.start_server())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: at the end a worker would wait for the other's last file.

    It needs ``--no-loadscope-reorder``: otherwise the files with the most tests come first.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not look at it after every other test."""
    if "hydra" in sys.modules:
        from warm.composing import compose_faster

        compose_faster()
    if "torch" in sys.modules:
        from warm.tracing import trace_faster

        trace_faster()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def warm_preprocess() -> Iterator[None]:
    """Data folders that tests make in this process are binarised by a warm command.

    A test can have another interpreter for it.
    """
    from data_prep import prepare

    binarise, usual = prepare.binarise, sys.executable

    def warmly(*arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if sys.executable == usual:
                patch.setattr(sys, "executable", str(commands.warm() / "python"))
            binarise(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "binarise", warmly)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real corpora (``FAIRSEQ_COLLAB_DATA``, else ``../shared/data``), or skip."""
    folder = Path(os.environ.get("FAIRSEQ_COLLAB_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}: set FAIRSEQ_COLLAB_DATA to a folder that has them")
    return folder


@pytest.fixture
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything in double precision, fairseq's softmax (always single) included; seeded."""
    import torch
    from fairseq import utils

    monkeypatch.setattr(utils, "softmax", lambda x, dim, onnx_trace=False: x.softmax(dim))
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    """The library for matrix products is chosen anew, for a test and after it."""
    from fairseq_collab.cpu_kernels.onednn import matrix_library

    matrix_library.cache_clear()
    yield
    matrix_library.cache_clear()
