"""A training in a separate process: ``fairseq-hydra-train``, and how it ended, in a file.

    python -m collab_lab.runs.child OUTCOME [options of fairseq-hydra-train]

A process that is killed writes no outcome.  Nothing of fairseq is imported before the arguments
are those of its command: messages are then those of that command, too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from collab_common import files
from collab_common.errors import chain, find, first_line


def outcome_of(error: BaseException) -> dict[str, Any]:
    """Verdict and reason of a training that an exception has ended.

    fairseq raises FloatingPointError when numbers are no longer finite, or the loss scale ran out.
    """
    # Hydra leaves by SystemExit; of several processes, the first sends its traceback.
    errors = [link for link in chain(error) if not isinstance(link, SystemExit)] or [error]
    name = FloatingPointError.__name__
    diverged = any(isinstance(link, FloatingPointError) or name in str(link) for link in errors)
    text = str(errors[0]).strip()
    line = text.splitlines()[-1] if "Traceback" in text else first_line(errors[0])
    user_error = find(error)
    reason = str(user_error) if user_error else f"{type(errors[0]).__name__}: {line}"
    return {
        "verdict": "diverged" if diverged else "failed",
        "reason": " ".join(reason.split()),
    }


def main() -> None:
    """Train by ``fairseq-hydra-train``, whose arguments follow the file of the outcome."""
    out, sys.argv[0] = Path(sys.argv.pop(1)), "fairseq-hydra-train"
    try:
        import_module("fairseq_cli.hydra_train").cli_main()
    except BaseException as error:
        files.write_json(out, outcome_of(error))
        raise
    files.write_json(out, {"verdict": "trained", "reason": ""})


if __name__ == "__main__":
    main()
