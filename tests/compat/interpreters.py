"""Running other interpreters: most of what is tested here happens when one starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import REPOSITORY


class Interpreter:
    """Runs code in a fresh interpreter: the one that runs the tests, or another."""

    def __init__(self, executable: str | Path = sys.executable) -> None:
        self.executable = Path(executable)

    def run(
        self, *arguments: object, script: str = "", cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it, or a command next to it, as from a shell in which nothing was set."""
        command = self.executable.with_name(script) if script else self.executable
        private = ("FAIRSEQ_COMPAT_OFF", "PYTHONPATH", "PYTHONSAFEPATH", "VIRTUAL_ENV")
        inherited = {key: value for key, value in os.environ.items() if key not in private}
        return subprocess.run(
            [*map(str, (command, *arguments))],
            cwd=cwd or "/",  # not in the checkout, whose packages could then be imported
            env={**inherited, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
        )

    def output(self, *arguments: object, **options: object) -> str:
        """Standard output of a run that has to succeed."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


PYTHON = Interpreter()


def pip(*arguments: object) -> None:
    """Run this environment's pip."""
    PYTHON.output("-m", "pip", "--disable-pip-version-check", *arguments)


def python_of(version: str) -> str:
    """A Python of this version, on the path or pyenv's; without one the test is skipped."""
    supported = "import sys, venv; sys.exit(sys.version_info < (3, 11, 4))"
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for python in (shutil.which(f"python{version}"), *map(str, installed)):
        if python and not subprocess.run([python, "-c", supported], capture_output=True).returncode:
            return python
    pytest.skip(f"no Python {version} here")


def empty_environment(folder: Path, python: str = sys.executable) -> Interpreter:
    """Make an environment without pip, torch and fairseq; pip works on it from outside."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    return Interpreter(folder / "bin" / "python")


def built(kind: str, folder: Path) -> Path:
    """What the build backend makes of a checkout: its "sdist" or its "editable" wheel."""
    build = f"import hatchling.build; print(hatchling.build.build_{kind}({str(folder)!r}))"
    return folder / PYTHON.output("-c", build, cwd=REPOSITORY).split()[-1]
