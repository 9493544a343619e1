"""Command line: ``python -m data_prep.embedded --out DIR``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from collab_common.command import not_negative, run
from data_prep.embedded.files import Request, write

PROGRAM = "data_prep.embedded"
_HELP = {
    "train": "training pairs", "valid": "validation pairs", "test": "test pairs",
    "seed": "random seed",
}  # fmt: skip


class _OneLineParser(argparse.ArgumentParser):
    """Errors in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: error: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    default = Request()
    parser = _OneLineParser(prog=f"python -m {PROGRAM}", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    for name, help_text in _HELP.items():
        value = getattr(default, name)
        parser.add_argument(f"--{name}", type=not_negative, default=value, help=help_text)
    given = parser.parse_args(arguments)
    request = Request(given.train, given.valid, given.test, given.seed)

    def make() -> None:
        state = "written" if write(given.out, request) else "already complete, skipped"
        print(f"{given.out}: {state} ({request.train} + {request.valid} + {request.test} pairs)")

    return run(PROGRAM, make)


if __name__ == "__main__":
    sys.exit(main())
