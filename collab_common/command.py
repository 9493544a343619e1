"""Parsers of options, how every command runs and ends, and types of option values."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from collab_common.errors import UserError, did_you_mean

N = TypeVar("N", int, float)
#: The most choices that an error lists.
FEW = 20


class Parser(argparse.ArgumentParser):
    """A parser of options whose errors are one line, without the usage of all options.

    For a mistyped option or choice, the line has the nearest one.
    """

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        return self._complete(*self.parse_known_args(args, namespace))

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        return self._complete(*self.parse_known_intermixed_args(args, namespace))

    def _complete(self, parsed: Any, unknown: list[str]) -> Any:
        """Return the parsed options; end the program if words are left over."""
        if not unknown:
            return parsed
        option = next((word for word in unknown if word.startswith("-")), None)
        if option is None:
            self.error(f"unexpected argument {unknown[0]!r}; see {self.prog} --help")
        option = option.partition("=")[0]
        todo = did_you_mean(option, self._option_string_actions) or f"see {self.prog} --help"
        self.error(f"there is no option {option}; {todo}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            problem = f"there is no {value!r}; {self.advise(action, str(value))}"
            raise argparse.ArgumentError(action, problem)

    def advise(self, action: argparse.Action, value: str) -> str:
        """Return what to do about a value that is none of the choices of an option."""
        known = [*map(str, action.choices or ())]
        listed = f"give {', '.join(known)}" if len(known) <= FEW else f"see {self.prog} --help"
        return did_you_mean(value, known) or listed

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def run(prog: str, action: Callable[[], object]) -> int:
    """Run a command and return its exit status: the result of ``action`` if it is a number.

    User errors, and errors of the system, print one line on standard error.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and _lacks_letters(sys.stdout):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = action()
        if sys.stdout is not None:  # standard output is None if the caller has closed it
            sys.stdout.flush()
    except UserError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has read enough, for example `head`
        silence_stdout()
        return 141  # as a shell reports a program that SIGPIPE ended
    except OSError as error:  # a full disk, a folder without permission, ...
        if error.errno is None and not isinstance(error, FileNotFoundError):
            raise  # fairseq's own error, which gives a missing data set only by name
        source = f"{error.filename}: " if error.filename else ""
        print(f"{prog}: error: {source}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return 130  # as a shell reports a program that SIGINT ended
    return status if isinstance(status, int) else 0


def _lacks_letters(stream: io.TextIOWrapper) -> bool:
    """Whether a letter of a text may be an error there: the locale may not have it."""
    in_locale_c = stream.errors == "surrogateescape" and stream.encoding.lower() != "utf-8"
    return stream.errors == "strict" or in_locale_c


def silence_stdout() -> None:
    """Redirect standard output, whose pipe is closed, so that flushing it at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def ranged(kind: Callable[[str], N], holds: Callable[[N], bool], said: str) -> Callable[[str], N]:
    """Return a type for argparse: numbers for which ``holds`` is true.

    Args:
        said: a description of these numbers, for the error about other numbers.
    """

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
    """Raise UserError for a path with a colon, which fairseq would split into two paths."""
    if os.pathsep in os.fspath(path):
        raise UserError("fairseq would split this path at its colon", path, "give another --out")


def check_folder_of(out: Path, option: str = "--out") -> None:
    """Raise UserError unless the folder of a result exists and its path has no colon."""
    check_splittable(out)
    check_folder(out.absolute().parent, f"create it, or give another {option}")
