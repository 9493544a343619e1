"""How every command ends: the one way to fail, and values that options accept."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from collab_common.errors import UserError


def run(prog: str, action: Callable[[], object]) -> int:
    """Run a command and return its exit status: what ``action`` returns, if that is a number.

    What a user can mend takes one line on standard error.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a locale may lack letters of a text
    try:
        status = _ended(prog, action)
    except SystemExit as end:  # argparse has said why
        flushed = _ended(prog, _flush)
        end.code = end.code or flushed
        raise
    flushed = _ended(prog, _flush)
    return status or flushed


def _ended(prog: str, action: Callable[[], object]) -> int:
    try:
        status = action()
    except UserError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        # a full disk, a folder without permission, ...
        if error.errno is None:  # not the system's but fairseq's own: fairseq_compat words those
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"{prog}: error: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return 130  # as a shell reports a program that SIGINT ended
    return status if isinstance(status, int) else 0


def _flush() -> None:
    """Write what was printed: what fails at exit is past all handling, and no status of ours."""
    try:
        if sys.stdout is not None:  # it is where the caller has closed it
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or it fails at exit, again
        raise


def positive(text: str) -> int:
    """For argparse: a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


def not_negative(text: str) -> int:
    """For argparse: a whole number from 0 up."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 up, not {text!r}")
    return int(text)


def check_folder(folder: Path, todo: str | None = None) -> None:
    """Raises UserError unless there is such a folder."""
    if not folder.is_dir():
        raise UserError("there is no such folder", folder, todo)


def check_folder_of(path: str | os.PathLike[str], option: str) -> None:
    """Raises UserError, with the option's name, unless a file to be written has a folder."""
    check_folder(Path(path).absolute().parent, f"make it, or give another {option}")
