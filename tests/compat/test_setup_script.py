"""recipes/setup.sh: what it refuses, skips and starts over. Nothing is downloaded here."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys

import pytest


@pytest.fixture
def setup(tmp_path, repository):
    """Run the script on an environment of its own, offline."""

    def run(*arguments, command=("bash", repository / "recipes" / "setup.sh"), **environment):
        return subprocess.run(
            [*command, *arguments],
            env={
                **{key: value for key, value in os.environ.items() if key != "PIP_FIND_LINKS"},
                "VENV": str(tmp_path / "env"),
                "PYTHON": sys.executable,
                "PIP_NO_INDEX": "1",
                "PIP_CONFIG_FILE": os.devnull,
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def fingerprint(repository):
    names = "constraints.txt", "pyproject.toml", "CITATION.cff"
    files = (repository / name for name in names)
    text = b"".join(path.read_bytes() for path in files)
    return f"{hashlib.sha256(text).hexdigest()} {platform.python_version()}\n"


@pytest.fixture
def finished(tmp_path, repository):
    """A stand-in for a finished environment: the interpreter and the stamp."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    stamp = tmp_path / "env" / "setup-complete"
    stamp.write_text(fingerprint(repository))
    return stamp


def test_a_finished_set_up_is_skipped(setup, finished):
    done = setup()
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("env is up to date\n")


def test_changed_constraints_bring_the_environment_up_to_date(setup, finished):
    finished.write_text("another fingerprint\n")
    done = setup()
    assert "installing torch" in done.stdout
    assert done.returncode == 1  # offline
    assert "another" in finished.read_text()


@pytest.mark.slow
def test_an_interrupted_set_up_starts_over(setup, tmp_path):
    done = setup()
    assert done.returncode == 1
    assert "installing torch" in done.stdout
    assert not (tmp_path / "env" / "setup-complete").exists()
    (tmp_path / "env" / "leftover").touch()
    done = setup()
    assert "interrupted: starting over" in done.stdout
    assert not (tmp_path / "env" / "leftover").exists()


def test_a_folder_that_is_no_environment_is_left_alone(setup, tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "thesis.txt").touch()
    for _ in range(2):
        done = setup()
        assert done.returncode == 1
        assert "is there, but no Python environment; name another place" in done.stderr
    assert [path.name for path in (tmp_path / "env").iterdir()] == ["thesis.txt"]


def test_an_environment_of_another_python_is_not_touched(setup, finished):
    (finished.parent / "bin" / "python").unlink()
    (finished.parent / "bin" / "python").write_text("#!/bin/sh\necho Python 3.9.1\n")
    (finished.parent / "bin" / "python").chmod(0o755)
    finished.write_text("another fingerprint\n")
    done = setup()
    assert done.returncode == 1
    assert "was made with another Python; remove it" in done.stderr


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"PYTHON": "no-such-python"}, "PYTHON=no-such-python: no such command"),
        ({"PYTHON": "false"}, "PYTHON=false is not one of Python 3.11 to 3.13"),
        ({"CXX": "no-such-compiler"}, "no C++ compiler (c++, g++, clang++); on Debian"),
    ],
)
def test_one_line_says_what_is_missing(setup, environment, told):
    done = setup(**environment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"setup: {told}")
    assert done.stderr.count("\n") == 1
