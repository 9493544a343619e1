"""Fixtures of the tests that start interpreters and install packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpreters import REPOSITORY, Interpreter


@pytest.fixture(scope="session")
def python() -> Interpreter:
    """The interpreter that runs the tests, started afresh for every call."""
    return Interpreter()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY
