"""The real commands, run in processes of their own on one thread of the CPU."""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
USER_DIR = ("--user-dir", REPOSITORY / "fairseq_collab")


SETTINGS = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
#: Commands that take seconds to start in a new interpreter, nearly all for importing fairseq.
SLOW_TO_START = {"fairseq-collab", "fairseq-eval-lm", "fairseq-generate", "fairseq-hydra-train"}
SLOW_TO_START |= {"fairseq-interactive", "fairseq-preprocess", "fairseq-train"}
NUMBER = struct.Struct("q")  # an answer of the fork server


class ForkServer:
    """Runs commands as forks of a process that has imported fairseq: see ``forkserver.py``."""

    def __init__(self) -> None:
        ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
        handles = [end.fileno() for end in theirs]
        program = [sys.executable, Path(__file__).with_name("forkserver.py"), USER_DIR[1]]
        self.process = subprocess.Popen(
            [str(word) for word in (*program, *handles)],
            pass_fds=handles,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **SETTINGS},
        )
        for end in theirs:
            end.close()
        self.fairseq, self.plugin = ours
        atexit.register(self.stop)

    def stop(self) -> None:
        """It ends when there is nobody to ask for more."""
        self.fairseq.close()
        self.plugin.close()
        self.process.wait()

    def run(
        self, command: list[str], timeout: float, cwd: Path | None, stdin: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script, with the environment of now."""
        plugin = Path(command[0]).name == "fairseq-collab" or str(USER_DIR[1]) in command
        server = self.plugin if plugin else self.fairseq
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
            for file in files:
                file.write_text(stdin if file.name == "stdin" else "")
            request = {
                "command": command,
                "cwd": str(cwd or Path.cwd()),
                "environment": {**os.environ, **SETTINGS},
                "files": [str(file) for file in files],
            }
            server.sendall(f"{json.dumps(request)}\n".encode())
            (pid,) = NUMBER.unpack(server.recv(NUMBER.size))
            expired = not select.select([server], [], [], timeout)[0]
            if expired:
                os.kill(pid, signal.SIGKILL)
            (status,) = NUMBER.unpack(server.recv(NUMBER.size))
            output, errors = (file.read_text() for file in files[1:])
        if expired:
            raise subprocess.TimeoutExpired(command, timeout, output, errors)
        return subprocess.CompletedProcess(
            command, os.waitstatus_to_exitcode(status), output, errors
        )


@functools.cache
def fork_server() -> ForkServer:
    """The one of this process of pytest, started when it is needed."""
    return ForkServer()


def run_command(
    *command: object,
    timeout: float = 600,
    cwd: Path | None = None,
    stdin: str = "",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run an installed command by name, or ``python`` for this interpreter.

    A slow starter is a fork of a warm process unless its environment is its own: much is read
    from there when an interpreter starts.
    """
    name, *rest = map(str, command)
    if name in SLOW_TO_START and not environment:
        return fork_server().run([str(BIN / name), *rest], timeout, cwd, stdin)
    program = sys.executable if name == "python" else str(BIN / name)
    return subprocess.run(
        [program, *rest],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **SETTINGS, **environment},
    )


def succeed(*command: object, **options: Any) -> str:
    """Run a command that must succeed; its standard output and error."""
    done = run_command(*command, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def refuse(*command: object, **options: Any) -> str:
    """Run a command that must refuse: non-zero, no traceback; its last line."""
    done = run_command(*command, **options)
    assert done.returncode != 0, done.stdout[-2000:]
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    return done.stderr.strip().splitlines()[-1]


def write_copy_task(folder: Path, words: int = 12, train: int = 2000) -> None:
    """The target is the source: what any sequence model must learn to do."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    vocabulary = [f"w{i}" for i in range(words)]
    for split, size in (("train", train), ("valid", 50), ("test", 50)):
        lines = [" ".join(chance.choices(vocabulary, k=chance.randint(3, 8))) for _ in range(size)]
        for language in ("en", "de"):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))


def preprocess(text: Path, out: Path) -> Path:
    """``fairseq-preprocess`` with a joined dictionary."""
    splits = [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
    languages = ("--source-lang", "en", "--target-lang", "de", "--joined-dictionary")
    succeed("fairseq-preprocess", *languages, *splits, "--destdir", out)
    return out


def train_log(output: str, kind: str = "train_inner") -> list[dict[str, Any]]:
    """The entries of ``--log-format json`` whose logger is ``kind``."""
    marker = f"| {kind} | "
    lines = (line.partition(marker)[2] for line in output.splitlines() if marker in line)
    return [json.loads(line) for line in lines]
