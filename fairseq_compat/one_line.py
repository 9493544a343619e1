"""Errors that a user can mend, in one line instead of a traceback."""

from __future__ import annotations

import argparse
import os
import sys
from types import TracebackType
from typing import Any, NoReturn

from collab_common.errors import find

from . import mistakes
from .patching import Proxy, wrap

COMMANDS = {"fairseq-collab", "fairseq-eval-lm", "fairseq-generate", "fairseq-hydra-train"}
COMMANDS |= {"fairseq-interactive", "fairseq-preprocess", "fairseq-score", "fairseq-train"}
COMMANDS |= {"fairseq-validate"}
TRACEBACK_WANTED = ("FAIRSEQ_COMPAT_TRACEBACK", "HYDRA_FULL_ERROR")  # by setting one to 1


def program() -> str | None:
    """Returns the name of the running command when it is one of fairseq's or our own."""
    path, name = os.path.split(sys.argv[0] if sys.argv else "")
    stem = name.removesuffix(".exe").removesuffix(".py")
    if os.path.basename(path) == "fairseq_cli":  # python -m fairseq_cli.train
        return "fairseq-" + stem.replace("_", "-")
    if os.path.basename(path) == "fairseq_collab":  # python -m fairseq_collab
        return "fairseq-collab"
    return stem if stem in COMMANDS else None


def report(error: BaseException) -> bool:
    """Prints the line for an exception; False when it needs its traceback."""
    if any(os.environ.get(name) == "1" for name in TRACEBACK_WANTED):
        return False
    mendable = find(error) or mistakes.translate(error)
    if mendable is None:
        return False
    text = " ".join(str(mendable).split())
    sys.stdout.flush()
    print(f"{program() or 'fairseq'}: error: {text}", file=sys.stderr, flush=True)
    return True


def apply() -> None:
    """A wrong option, path or checkpoint ends in a page of traceback."""
    if program() is None:
        return
    report_uncaught()
    report_to_hydra()
    report_options()
    mistakes.apply()


def report_uncaught() -> None:
    """Everything else keeps the hook, and so the traceback, that it had."""
    others = sys.excepthook

    def excepthook(kind: Any, error: BaseException, traceback: TracebackType | None) -> None:
        if not report(error):
            others(kind, error, traceback)

    sys.excepthook = excepthook


def report_to_hydra() -> None:
    """Hydra reports the errors of a job itself, with a traceback, and leaves the program."""
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


class OneLineParser(argparse.ArgumentParser):
    """Leaves out the usage of some hundred lines that hides the error below it."""

    def error(self, message: str) -> NoReturn:
        text = " ".join(mistakes.of_options(message).split())
        self.exit(2, f"{program() or self.prog}: error: {text}\n")


def report_options() -> None:
    """fairseq's parsers print their usage of some hundred lines with every error."""
    from fairseq import options

    options.argparse = Proxy(argparse, ArgumentParser=OneLineParser)
