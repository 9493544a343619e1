"""Running other interpreters: most of what is tested here happens when one starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


class Interpreter:
    """Runs code in a fresh interpreter and returns what it printed."""

    def __init__(self, executable: str | Path = sys.executable) -> None:
        self.executable = str(executable)

    def run(
        self, *arguments: str, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with these arguments and additions to the environment."""
        # Neither this process's own hook switch nor its path may reach the other one.
        inherited = {
            key: value
            for key, value in os.environ.items()
            if key not in ("FAIRSEQ_COMPAT_OFF", "PYTHONPATH", "PYTHONSAFEPATH")
        }
        return subprocess.run(
            [self.executable, *arguments],
            cwd=cwd or "/",  # not in the checkout, whose packages could then be imported
            env={**inherited, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def output(self, *arguments: str, cwd: Path | None = None, **environment: str) -> str:
        """Return standard output of a run that has to succeed."""
        done = self.run(*arguments, cwd=cwd, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def python() -> Interpreter:
    """The interpreter that runs the tests, started afresh for every call."""
    return Interpreter()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY
