"""Starts commands as forks of a process that has imported torch, fairseq and the plug-in.

The imports take two seconds of processor time, in each of some hundred commands.  A command is a
process with its own arguments, folder, environment, files and end all the same, and it runs the
installed script, or the module.  Those who ask are copies of ``client.py``.  The server ends when
standard input does.
"""

from __future__ import annotations

import atexit
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
import threading
from pathlib import Path
from typing import Any

#: What commands import, early or late.
PRELOAD = ("fairseq_collab", "fairseq.quantization_utils", "fairseq.sequence_scorer")
PRELOAD += ("fairseq.data.data_utils_fast", "fairseq.model_parallel.megatron_trainer")
PRELOAD += ("sentencepiece", "torch._dynamo", "sacrebleu", "fairseq.libbleu", "pandas")
PRELOAD += ("collab_lab.shrinking.by_hand", "collab_lab.runs.score", "collab_lab.runs.sweep")
PRELOAD += ("collab_lab.runs.scheduler", "collab_lab.results.table", "data_prep.prepare")


class Commands:
    """Those that run: what tells their end, and the connection to who asked for it."""

    def __init__(self) -> None:
        self.running: dict[int, tuple[int, socket.socket]] = {}

    def files(self) -> list[Any]:
        """What becomes readable when a command ends, or its client."""
        return [one for end, (_, client) in self.running.items() for one in (end, client)]

    def start(self, client: socket.socket) -> dict[str, Any] | None:
        """Fork a command: its process returns the request; None in this one."""
        content, files, _, _ = socket.recv_fds(client, 1 << 20, 3)
        while content and not content.endswith(b"\n"):
            more = client.recv(1 << 20)
            content = content + more if more else b""
        child = os.fork() if content else 0
        if child or not content:
            for file in files:
                os.close(file)
            if child:
                self.running[os.pidfd_open(child)] = child, client
                tell(client, child)
            return None
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        for one in self.files():
            os.close(one if isinstance(one, int) else one.detach())
        client.close()
        request: dict[str, Any] = json.loads(content)
        return request

    def look(self, ready: list[Any]) -> None:
        """Send the status of those that have ended; a command dies with its client."""
        for end, (child, client) in list(self.running.items()):
            if end in ready:
                tell(client, os.waitpid(child, 0)[1])
                client.close()
                os.close(end)
                del self.running[end]
            elif client in ready:
                with contextlib.suppress(ProcessLookupError):  # it has no session yet
                    os.killpg(child, signal.SIGKILL)
                os.kill(child, signal.SIGKILL)


def tell(client: socket.socket, number: int) -> None:
    """Send a line with a number."""
    with contextlib.suppress(BrokenPipeError):  # killed already: its command goes next
        client.sendall(f"{number}\n".encode())


def serve(folder: Path) -> dict[str, Any] | None:
    """Start a command whenever one is asked for: its process returns the request.

    The server itself returns None, at the end of standard input.
    """
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "new"))
    listening.listen()
    (folder / "new").rename(folder / "socket")
    commands = Commands()
    while True:
        ready = select.select([listening, sys.stdin, *commands.files()], [], [])[0]
        if sys.stdin in ready:
            return None
        commands.look(ready)
        if listening in ready and (request := commands.start(listening.accept()[0])):
            listening.close()
            return request


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
    if name == "-c":
        exec(sys.argv.pop(1), {"__name__": "__main__"})
        return
    start = runpy.run_module if is_module else runpy.run_path
    start(name, run_name="__main__")


def draw_once() -> None:
    """Draw a figure: what matplotlib imports and reads for it stays."""
    figure = importlib.import_module("collab_lab.results.figure")
    drawn = figure.draw({"": {"own": {1: [1.0], 2: [2.0]}}}, "x", "y", "title")
    for form in ("svg", "pdf"):
        figure.saved(drawn, form)


def ended(**request: Any) -> None:
    """Run a command, and end this process without taking its modules apart.

    That would touch, and therefore copy, all memory of the server, which takes longer than many a
    command. What an interpreter does before is done: threads, exit functions, open output.
    """
    status: Any = 0
    try:
        run(**request)
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        status = error.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):  # the interpreter reports it
        sys.exit(status)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    from composing import compose_faster, compose_once
    from tracing import trace_faster

    sys.path.pop(0)  # the folder of this file
    for module in PRELOAD:
        importlib.import_module(module)
    compose_faster()
    compose_once()
    draw_once()
    trace_faster()
    os.fsync = lambda descriptor: None  # no test cuts the power, and a disk takes its time
    home = Path(sys.argv[1])
    sys.executable = str(home / "python")  # what a command starts is warm, too
    gc.freeze()  # a child's collector leaves alone what is shared
    if request := serve(home):
        ended(**request)
