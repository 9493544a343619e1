"""Errors of fairseq's commands and of ours: each is one line."""

from __future__ import annotations

import errno
import os
import sys
from types import TracebackType
from typing import Any

from collab_common.command import silence_stdout
from collab_common.errors import UserError, find

from .patching import wrap

TRACEBACK_WANTED = "FAIRSEQ_COMPAT_TRACEBACK"  # by setting it to 1
RESUME = "; run the same command again to resume from the last checkpoint"


def program() -> str | None:
    """Return the name of the running command if it is one of fairseq's or ours."""
    path, name = os.path.split(sys.argv[0] if sys.argv else "")
    stem = name.removesuffix(".py")
    if os.path.basename(path) == "fairseq_cli":  # python -m fairseq_cli.train
        return "fairseq-" + stem.replace("_", "-")
    return stem if stem.startswith("fairseq-") else None


def report(error: BaseException) -> bool:
    """Print one line for an error that a user can act on; return whether it is one.

    Such errors are an interruption, a UserError, a text that is not UTF-8, a missing package, a
    subset that does not exist, and what a command of fairseq asserts of its options, for example
    that ``--path`` is given.  Other errors keep their traceback.  A closed pipe, as of ``| head``,
    ends in silence.
    """
    if program() is None:
        return False
    if isinstance(error, BrokenPipeError):
        silence_stdout()
        return True
    if isinstance(error, KeyboardInterrupt):
        _say("interrupted" + RESUME * str(program()).endswith("train"))
        return True
    user_error: BaseException | None = find(error)
    if isinstance(error, UnicodeDecodeError):
        user_error = UserError(f"a text is not UTF-8 ({error})", todo="convert it")
    if isinstance(error, ImportError) and "lease install" in str(error):  # fairseq says it so
        user_error = UserError(" ".join(str(error).split()))
    if isinstance(error, AssertionError) and str(error) and _is_of_command(error):
        user_error = UserError(str(error))  # of options, whose names it says
    if isinstance(error, FileNotFoundError) and str(error).startswith("Dataset not found"):
        user_error = UserError(str(error))  # fairseq's own, of a subset
    if user_error is None and isinstance(error, OSError) and error.errno and error.filename:
        user_error = UserError(error.strerror or str(error), error.filename)
    if user_error is None and isinstance(error, OSError) and error.errno == errno.ENOSPC:
        user_error = UserError(error.strerror or str(error))  # often of standard output: no name
    if user_error is None or os.environ.get(TRACEBACK_WANTED) == "1":
        return False
    _say(f"error: {' '.join(str(user_error).split())}")
    return True


def _is_of_command(error: BaseException) -> bool:
    """Return whether the module of one of fairseq's commands has raised the error itself."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    folder = os.path.dirname(traceback.tb_frame.f_code.co_filename) if traceback else ""
    return os.path.basename(folder) == "fairseq_cli"


def _say(line: str) -> None:
    sys.stdout.flush()
    print(f"{program()}: {line}", file=sys.stderr, flush=True)


def shorten_errors() -> None:
    """Ctrl-C, a closed pipe, missing packages and UserErrors of a plug-in end in a traceback."""
    previous = sys.excepthook

    def excepthook(kind: Any, error: BaseException, traceback: TracebackType | None) -> None:
        if not report(error):
            previous(kind, error, traceback)

    sys.excepthook = excepthook


def shorten_hydras_errors() -> None:
    """Hydra prints the errors of a job itself, and exits before a short line could be printed."""
    from hydra._internal import utils

    @wrap(utils, "run_and_report")
    def run_and_report(original: Any, func: Any) -> Any:
        def guarded() -> Any:
            try:
                return func()
            except Exception as error:
                if not report(error):
                    raise
                raise SystemExit(1) from error

        return original(guarded)
