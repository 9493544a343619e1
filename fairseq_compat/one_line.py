"""User errors below fairseq's commands: one line on standard error instead of a traceback."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from collab_common.errors import find

from .patching import wrap

TRACEBACK_WANTED = ("FAIRSEQ_COMPAT_TRACEBACK", "HYDRA_FULL_ERROR")  # by setting one to 1


def program() -> str | None:
    """Return the name of the running command if it is one of fairseq's or ours."""
    path, name = os.path.split(sys.argv[0] if sys.argv else "")
    stem = name.removesuffix(".py")
    if os.path.basename(path) == "fairseq_cli":  # python -m fairseq_cli.train
        return "fairseq-" + stem.replace("_", "-")
    return stem if stem.startswith("fairseq-") else None


def report(error: BaseException) -> bool:
    """Print a UserError's line; False for other errors, which keep their traceback."""
    found = find(error)
    if found is None or any(os.environ.get(name) == "1" for name in TRACEBACK_WANTED):
        return False
    sys.stdout.flush()
    print(f"{program()}: error: {' '.join(str(found).split())}", file=sys.stderr, flush=True)
    return True


def apply() -> None:
    """UserErrors of a plug-in end in a page of traceback.

    Hydra reports the errors of a job itself, and leaves the program.
    """
    if program() is None:
        return
    from hydra._internal import utils

    others = sys.excepthook

    def excepthook(kind: Any, error: BaseException, traceback: TracebackType | None) -> None:
        if not report(error):
            others(kind, error, traceback)

    sys.excepthook = excepthook

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
