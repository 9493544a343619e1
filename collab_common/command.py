"""How every command ends, and values that options accept."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from collab_common.errors import UserError

N = TypeVar("N", int, float)


def run(prog: str, action: Callable[[], object]) -> int:
    """Run a command and return its exit status: the result of ``action`` if it is a number.

    User errors, and errors of the system, print one line on standard error.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a locale may lack letters of a text
    try:
        status = action()
        if sys.stdout is not None:  # it is None if the caller has closed it
            sys.stdout.flush()
    except UserError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has what it wants, as `head` has
        silence_stdout()
        return 141  # as a shell reports a program that SIGPIPE ended
    except OSError as error:  # a full disk, a folder without permission, ...
        if error.errno is None and not isinstance(error, FileNotFoundError):
            raise  # not the system's but fairseq's own; it knows a missing data set only by name
        source = f"{error.filename}: " if error.filename else ""
        print(f"{prog}: error: {source}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return 130  # as a shell reports a program that SIGINT ended
    return status if isinstance(status, int) else 0


def silence_stdout() -> None:
    """Lead standard output, whose pipe is closed, to nowhere: or it fails at exit, again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def ranged(kind: Callable[[str], N], holds: Callable[[N], bool], said: str) -> Callable[[str], N]:
    """Return a type for argparse: numbers for which ``holds``; others must be as ``said``."""

    def value(text: str) -> N:
        with contextlib.suppress(ValueError):
            if holds(number := kind(text)):
                return number
        raise argparse.ArgumentTypeError(f"must be {said}, not {text!r}")

    return value


positive = ranged(int, lambda number: number > 0, "a whole number above 0")
not_negative = ranged(int, lambda number: number >= 0, "a whole number from 0 up")
share = ranged(float, lambda number: 0 <= number <= 1, "a number from 0 to 1")
amount = ranged(float, lambda number: number >= 0, "a number from 0 up")


def check_folder(folder: Path, todo: str | None = None) -> None:
    """Raise UserError unless the folder exists."""
    if not folder.is_dir():
        raise UserError("folder not found", folder, todo)


def check_splittable(path: str | os.PathLike[str]) -> None:
    """Raise UserError for a name with a colon, which fairseq takes for two paths."""
    if os.pathsep in os.fspath(path):
        raise UserError("has a colon, by which fairseq separates paths", path, "give another --out")


def check_folder_of(out: Path) -> None:
    """Raise UserError unless ``--out``, a file to be written, has a folder, and no colon."""
    check_splittable(out)
    check_folder(out.absolute().parent, "make it, or give another --out")
