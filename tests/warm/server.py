"""Starts commands as forks of a process that has imported torch, fairseq and the plug-in.

The imports take two seconds of processor time, in each of some hundred commands.  A command is a
process with its own arguments, folder, environment, files and end all the same, and it runs the
installed script, or the module.  Those who ask are copies of ``client.py``.  The server ends when
standard input does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

#: What commands import, early or late.
PRELOAD = ("fairseq_collab", "fairseq.modules.quantization", "fairseq.sequence_scorer")
PRELOAD += ("sentencepiece", "torch._dynamo", "matplotlib.figure", "sacrebleu")
PRELOAD += ("collab_lab.shrinking.changes", "collab_lab.runs.score", "collab_lab.runs.sweep")


def serve(folder: Path) -> dict[str, Any] | None:
    """Start a command whenever one is asked for: its process returns the request.

    The server itself returns None, at the end of standard input.
    """
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "new"))
    listening.listen()
    (folder / "new").rename(folder / "socket")
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return started(connection)
        connection.close()
    return None


def started(connection: socket.socket) -> dict[str, Any]:
    """Fork a command, and send its status; it dies with the client."""
    content, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not content.endswith(b"\n"):
        content += connection.recv(1 << 20)
    child = os.fork()
    if child == 0:
        connection.close()
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        request: dict[str, Any] = json.loads(content)
        return request
    for file in files:
        os.close(file)
    with contextlib.suppress(BrokenPipeError):  # killed already: the child goes next
        connection.sendall(f"{child}\n".encode())
    if connection in select.select([connection, os.pidfd_open(child)], [], [])[0]:
        with contextlib.suppress(ProcessLookupError):  # it has no session of its own yet
            os.killpg(child, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{status}\n".encode())
    os._exit(0)


def run(command: list[str], folder: str, environment: dict[str, str]) -> None:
    """Run a program, or a module, as a new interpreter would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    is_module = command[0] == "-m"
    sys.argv = command[is_module:]
    name = sys.argv[0]
    sys.path.insert(0, folder if is_module else os.path.dirname(name))
    if is_module:
        spec = importlib.util.find_spec(name)
        sys.argv[0] = spec.origin if spec is not None and spec.origin else name
    from fairseq_compat import messages

    if messages.program() in ("fairseq-train", None):
        logging.root.handlers.clear()  # set up before fairseq is imported, which does it, too
    start = runpy.run_module if is_module else runpy.run_path
    start(name, run_name="__main__")


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    for module in PRELOAD:
        importlib.import_module(module)
    from hydra.core.config_store import ConfigStore

    # Hydra copies its store of fairseq's options, which nothing changes, whenever it composes a
    # configuration: more than half of the time.
    ConfigStore.__deepcopy__ = lambda store, memo: store
    home = Path(sys.argv[1])
    sys.executable = str(home / "python")  # what a command starts is warm, too
    gc.freeze()  # a child's collector leaves alone what is shared
    if request := serve(home):
        run(**request)
