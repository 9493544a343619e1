"""Command line: ``python -m data_prep.embedded --out DIR``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from collab_common.command import run
from data_prep.embedded.files import Request, write

PROGRAM = "data_prep.embedded"


class _OneLineParser(argparse.ArgumentParser):
    """Errors in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: error: {message}\n")


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative: {text}")
    return value


def main(arguments: list[str] | None = None) -> int:
    default = Request()
    parser = _OneLineParser(prog=f"python -m {PROGRAM}", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--train", type=_count, default=default.train, help="training pairs")
    parser.add_argument("--valid", type=_count, default=default.valid, help="validation pairs")
    parser.add_argument("--test", type=_count, default=default.test, help="test pairs")
    parser.add_argument("--seed", type=_count, default=default.seed, help="random seed")
    given = parser.parse_args(arguments)
    request = Request(given.train, given.valid, given.test, given.seed)

    def make() -> None:
        state = "written" if write(given.out, request) else "already complete, skipped"
        print(f"{given.out}: {state} ({request.train} + {request.valid} + {request.test} pairs)")

    return run(PROGRAM, make)


if __name__ == "__main__":
    sys.exit(main())
