"""``fairseq-collab`` itself, before any of its commands."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from commands import REPOSITORY, run_command

COMMAND = (sys.executable, "-m", "collab_common.main")


def test_fairseqs_advice_on_speech_is_not_passed_on() -> None:
    """tensorboardX is for a task that translation never uses."""
    # As a module of this folder: an editable installation has a copy of its own.
    done = run_command("python", "-m", "collab_common.main", "cost", "--help", cwd=REPOSITORY)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: fairseq-collab cost")
    assert done.stderr == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_takes_is_an_error_in_one_line(unbuffered: str) -> None:
    """As through `| head`, or to a full disk: whether it fails at once or at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "--help"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "fairseq-collab: error: Broken pipe\n")


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        ("UserError('is wrong', 'it')", 1, "prog: error: it: is wrong\n"),
        ("PermissionError(13, 'Denied', 'it')", 1, "prog: error: it: Denied\n"),
        ("KeyboardInterrupt", 130, "prog: interrupted\n"),
        ("SystemExit(2)", 2, ""),
    ],
)
def test_output_that_nobody_takes_hides_no_other_error(raised: str, status: int, said: str) -> None:
    """Of a command that was stopped through `| tee`, say."""
    code = f"""import sys
from collab_common.command import run
from collab_common.errors import UserError
def action():
    print("printed")
    raise {raised}
sys.exit(run("prog", action))"""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (status, f"{said}prog: error: Broken pipe\n")


def test_without_standard_output() -> None:
    command = ["bash", "-c", 'exec "$@" >&-', "bash", *COMMAND, "--help"]
    done = subprocess.run(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_terminal_cannot_show_is_shown_by_its_number() -> None:
    said = "from collab_common.command import run; run('it', lambda: print('\\u201eJa'))"
    done = subprocess.run(
        [sys.executable, "-c", said],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
    )
    assert (done.returncode, done.stdout) == (0, b"\\u201eJa\n")
