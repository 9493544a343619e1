"""Starts commands as forks of a process that has imported torch and fairseq, which takes seconds.

A command is a process of its own all the same, with its own arguments, folder, environment, files
and end, and it runs the installed script, or the module. Two servers answer at sockets in FOLDER:
in one fairseq is imported, in the other this plug-in, too, as ``--user-dir`` imports it. Those who
ask are copies of ``client.py``. Ends when standard input does.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
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
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from composing import compose_faster

#: The last that fairseq's commands import, and what torch's optimisers import when one is made.
LATE = ("fairseq.modules.quantization", "fairseq.sequence_scorer", "sentencepiece", "torch._dynamo")
#: The same of the commands of this plug-in.
PLUGIN_LATE = ("joblib", "matplotlib.figure", "sacrebleu", "torch.profiler")
PLUGIN_LATE += ("fairseq_collab.runs.score", "fairseq_collab.runs.sweep")


def main(folder: Path, user_dir: str) -> None:
    """Import, fork the second server, and go on as a command whenever one is asked for."""
    sys.path.pop(0)  # the folder of this file
    listening = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for end, name in zip(listening, ("fairseq", "plugin"), strict=True):
        end.bind(str(folder / "new"))
        end.listen()
        (folder / "new").rename(folder / name)
    for module in LATE:
        importlib.import_module(module)
    compose_faster()
    compose_once()
    convert_options()
    sys.executable = str(folder / "python")  # what a command starts is warm, too
    second = os.fork()
    if second == 0:
        utils = importlib.import_module("fairseq.utils")
        utils.import_user_module(Namespace(user_dir=user_dir))
        for module in PLUGIN_LATE:
            importlib.import_module(module)
        convert_options()
    serve(listening[second == 0])
    with contextlib.suppress(ChildProcessError):
        os.waitpid(second, 0)


def compose_once() -> None:
    """What Hydra has read, and its grammar, are remembered in every command."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    parser = options.get_training_parser()
    usual = ["DATA", "--arch=transformer", "--max-tokens=1"]
    convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, usual))


def convert_options() -> None:
    """Those of all models, tasks, ...: hydra converts them when a copy is asked for."""
    from hydra.core.config_store import ConfigStore

    copy.deepcopy(ConfigStore.instance().repo)


def serve(listening: socket.socket) -> None:
    """Answer until nobody is left who could ask; a child of it answers a request and ends."""
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
    """Run what is asked for in a child and say how it ended; it dies with the one who asked."""
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
    """Run a program as a new interpreter would."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    deaf = request["deaf_to_ctrl_c"]  # the server may be, if it was started in the background
    signal.signal(signal.SIGINT, signal.SIG_IGN if deaf else signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if os.environ.get("PYTHONWARNINGS") == "ignore":
        warnings.simplefilter("ignore")
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    sys.argv = request["command"]
    program = program_of(*sys.argv)
    from fairseq_compat import one_line

    one_line.apply()  # it asks for the program's name, which was another when fairseq was imported
    if one_line.program() in ("fairseq-train", None):
        logging.root.handlers.clear()  # set up before fairseq is imported, which does it, too
    end(program)


def program_of(first: str, *rest: str) -> Callable[[], object]:
    """What ``python FIRST REST`` runs; ``sys.argv`` and ``sys.path`` become what it sees."""
    if first == "-m":
        del sys.argv[0]
        sys.path.insert(0, os.getcwd())
        found = importlib.util.find_spec(rest[0])
        if found is not None and found.origin:
            sys.argv[0] = found.origin
        return functools.partial(runpy.run_module, rest[0], run_name="__main__", alter_sys=True)
    sys.path.insert(0, os.path.dirname(first))
    return functools.partial(runpy.run_path, first, run_name="__main__")


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
    main(Path(sys.argv[1]), sys.argv[2])
