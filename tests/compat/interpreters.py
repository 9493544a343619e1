"""Running other interpreters: most of what is tested here happens when one starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


class Interpreter:
    """Runs code in a fresh interpreter."""

    def __init__(self, executable: str | Path = sys.executable) -> None:
        self.executable = Path(executable)

    def run(
        self, *arguments: str | Path, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with these arguments and additions to the environment."""
        return self.run_command(self.executable, *arguments, cwd=cwd, **environment)

    def run_script(
        self, name: str, *arguments: str | Path, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that is installed beside the interpreter."""
        script = self.executable.with_name(name)
        return self.run_command(script, *arguments, cwd=cwd, **environment)

    @staticmethod
    def run_command(
        *command: str | Path, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as from a shell in which nothing was set or activated."""
        private = ("FAIRSEQ_COMPAT_OFF", "PYTHONPATH", "PYTHONSAFEPATH", "VIRTUAL_ENV")
        inherited = {key: value for key, value in os.environ.items() if key not in private}
        return subprocess.run(
            [str(part) for part in command],
            cwd=cwd or "/",  # not in the checkout, whose packages could then be imported
            env={**inherited, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def output(self, *arguments: str | Path, cwd: Path | None = None, **environment: str) -> str:
        """Return standard output of a run that has to succeed."""
        return succeeded(self.run(*arguments, cwd=cwd, **environment)).stdout


def succeeded(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Return a finished command, after making sure that it did not fail."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def pip(*arguments: str | Path) -> None:
    """Run this environment's pip."""
    succeeded(Interpreter().run("-m", "pip", "--disable-pip-version-check", *arguments))


def empty_environment(folder: Path) -> Interpreter:
    """Make an environment without pip, torch and fairseq; pip works on it from outside."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return Interpreter(folder / "bin" / "python")


def built(kind: str, folder: Path, repository: Path) -> Path:
    """What the build backend makes of a checkout: its "sdist" or its "editable" wheel."""
    build = f"import hatchling.build; print(hatchling.build.build_{kind}({str(folder)!r}))"
    return folder / Interpreter().output("-c", build, cwd=repository).split()[-1]
