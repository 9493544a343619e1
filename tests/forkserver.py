"""Starts commands as forks of a process that has imported torch and fairseq, which takes seconds.

A command is a process of its own all the same, with its own arguments, folder, environment, files
and end, and it runs the installed script. Two servers answer: in one fairseq is imported, in the
other this plug-in, too, as ``--user-dir`` imports it. The other half is ``commands.ForkServer``,
which starts this file and sends requests, a line of JSON each; answers are a process id and what
``waitpid`` says.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import struct
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from typing import Any, NoReturn

NUMBER = struct.Struct("q")  # an answer


def main(user_dir: str, *sockets: str) -> None:
    """Import, fork the second server, and go on as a command whenever one is asked for."""
    sys.path.pop(0)  # the folder of this file
    sys.argv = ["fairseq-train"]  # the patches look whether the program is one of these commands
    stock, plugged = (socket.socket(fileno=int(number)) for number in sockets)
    for module in ("fairseq.modules.quantization", "fairseq.sequence_scorer", "sentencepiece"):
        importlib.import_module(module)  # the last that fairseq's commands import
    if os.fork():
        plugged.close()
        become(serve(stock))
    else:
        stock.close()
        utils = importlib.import_module("fairseq.utils")
        utils.import_user_module(Namespace(user_dir=user_dir))
        importlib.import_module("matplotlib.figure")
        become(serve(plugged))


def serve(requests: socket.socket) -> dict[str, Any]:
    """Answer until there are no more requests; returns in the child that a request is for."""
    gc.freeze()  # a child's collector leaves alone what is shared
    with requests, requests.makefile("r") as lines:
        for line in lines:
            pid = os.fork()
            if pid == 0:
                return json.loads(line)
            requests.sendall(NUMBER.pack(pid))
            requests.sendall(NUMBER.pack(os.waitpid(pid, 0)[1]))
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Run a script as a new interpreter would, and end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no command outlives the server
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, path in enumerate(request["files"]):
        handle = os.open(path, os.O_RDWR)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = request["command"]
    script = sys.argv[0]
    sys.path.insert(0, os.path.dirname(script))
    if os.path.basename(script) == "fairseq-train":
        logging.root.handlers.clear()  # it configures the log before it imports fairseq
    end(lambda: runpy.run_path(script, run_name="__main__"))


def end(program: Callable[[], object]) -> NoReturn:
    """Run to the end of a process, without taking its modules apart: that costs time."""
    status: object = 0
    try:
        program()
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
    main(*sys.argv[1:])
