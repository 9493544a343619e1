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
from argparse import Namespace
from pathlib import Path
from typing import Any, NoReturn

from composing import compose_faster

#: What commands import late.
LATE = ("fairseq.modules.quantization", "fairseq.sequence_scorer", "sentencepiece", "torch._dynamo")
LATE += ("matplotlib.figure", "sacrebleu", "collab_lab.runs.score", "collab_lab.runs.sweep")


def main(folder: Path, user_dir: str) -> None:
    """Import, and start a command whenever one is asked for."""
    sys.path.pop(0)  # the folder of this file
    utils = importlib.import_module("fairseq.utils")
    utils.import_user_module(Namespace(user_dir=user_dir))
    for module in LATE:
        importlib.import_module(module)
    compose_faster()
    sys.executable = str(folder / "python")  # what a command starts is warm, too
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "new"))
    listening.listen()
    (folder / "new").rename(folder / "socket")
    gc.freeze()  # a child's collector leaves alone what is shared
    while True:
        ready = select.select([listening, sys.stdin], [], [])[0]
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if sys.stdin in ready:
            return
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            answer(connection)
        connection.close()


def answer(connection: socket.socket) -> NoReturn:
    """Run a command in a child and send its status; the child dies with the client."""
    content, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not content.endswith(b"\n"):
        content += connection.recv(1 << 20)
    child = os.fork()
    if child == 0:
        connection.close()
        os.setsid()
        become(json.loads(content), files)
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


def become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Run a program as a new interpreter would, to the end of the process."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    sys.argv = request["command"]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        name = sys.argv[0]
        sys.path.insert(0, os.getcwd())
        found = importlib.util.find_spec(name)
        sys.argv[0] = found.origin if found is not None and found.origin else name
        start, what = runpy.run_module, name
    else:
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        start, what = runpy.run_path, sys.argv[0]
    from fairseq_compat import messages

    if messages.program() in ("fairseq-train", None):
        logging.root.handlers.clear()  # set up before fairseq is imported, which does it, too
    status: object = 0
    try:
        start(what, run_name="__main__")
    except SystemExit as exit_:
        status = exit_.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
