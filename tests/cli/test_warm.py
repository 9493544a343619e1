"""The tests' own warm commands (``warm/server.py``) are those that a user starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from commands import SETTINGS, run_command, warm
from data.processes import is_running, wait_for


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("fairseq-train", "nowhere", "--arch=transformer", "--max-tokens=1"),
        ("python", "-m", "fairseq_cli.train", "nowhere", "--arch=nothing"),
        ("fairseq-collab", "score"),
    ],
    ids=" ".join,
)
def test_it_ends_as_in_a_new_interpreter(command: tuple[str, ...], tmp_path: Path) -> None:
    warmed, fresh = (run_command(*command, cwd=tmp_path, fresh=fresh) for fresh in (False, True))
    assert warmed.returncode == fresh.returncode != 0
    last = [done.stderr.splitlines()[-1].rpartition(": ")[2] for done in (warmed, fresh)]
    assert last[0] == last[1]


PROGRAM = """
import os, sys, time
print(os.getpid(), os.getcwd(), os.environ["HERE"], sys.stdin.read(), *sys.argv[1:], flush=True)
{}
"""


def program(folder: Path, end: str) -> Path:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(end))
    return path


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


def test_it_is_killed_with_a_client_that_waited_for_nothing(tmp_path: Path) -> None:
    run_command("python", program(tmp_path, "pass"), cwd=tmp_path, HERE="")  # the server is there
    output = tmp_path / "output"
    request = {"command": [str(program(tmp_path, "time.sleep(600)"))], "folder": str(tmp_path)}
    request |= {"environment": {**SETTINGS, "HERE": ""}, "deaf_to_ctrl_c": False}
    with (
        output.open("w") as file,
        open(os.devnull) as nothing,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(warm() / "fairseq"))
        files = [nothing.fileno(), file.fileno(), file.fileno()]
        socket.send_fds(client, [json.dumps(request).encode() + b"\n"], files)
    assert not wait_for(output.read_text, seconds=3) or wait_for(
        lambda: not is_running(int(output.read_text().split()[0]))
    )
