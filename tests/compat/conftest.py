"""Fixtures of the tests that start interpreters and install packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpreters import REPOSITORY, Interpreter, pip


@pytest.fixture(scope="session")
def python() -> Interpreter:
    """The interpreter that runs the tests, started afresh for every call."""
    return Interpreter()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, repository)
    return next(folder.glob("*.whl"))
