"""The tests' own warm commands (``warm/server.py``) are those that a user starts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from commands import SETTINGS, run_command, warm
from data.processes import is_running, wait_for

PROGRAM = """
import os, sys, time
print(os.getpid(), os.getcwd(), os.environ["HERE"], sys.stdin.read(), *sys.argv[1:], flush=True)
{}
"""


def program(folder: Path, end: str) -> Path:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(end))
    return path


def test_it_ends_as_in_a_new_interpreter(tmp_path: Path) -> None:
    command = ("fairseq-train", "nowhere", "--arch=transformer", "--max-tokens=1")
    warmed, fresh = (run_command(*command, cwd=tmp_path, fresh=fresh) for fresh in (False, True))
    assert warmed.returncode == fresh.returncode != 0
    assert warmed.stderr.splitlines()[-1] == fresh.stderr.splitlines()[-1]


def test_it_has_its_own_surroundings(tmp_path: Path) -> None:
    path = program(tmp_path, "os.kill(os.getpid(), 9)")
    done = run_command("python", path, "one", 2, cwd=tmp_path, stdin="text", HERE="there")
    assert done.stdout.split()[1:] == [str(tmp_path), "there", "text", "one", "2"]
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_is_killed_with_its_client(number: int, tmp_path: Path) -> None:
    command = [warm() / "python", program(tmp_path, "time.sleep(600)")]
    client = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, **SETTINGS, "HERE": ""},
    )
    pid = int(client.stdout.readline().split()[0])
    client.send_signal(number)
    assert client.wait() == -number
    assert wait_for(lambda: not is_running(pid))
    client.stdout.close()
