"""User errors: one line in place of a traceback."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from numbers import Integral


class UserError(Exception):
    """An error that the user can fix.

    Wherever it is raised within one of fairseq's commands, the command prints
    ``fairseq-train: error: WHERE: PROBLEM; TODO`` and ends with status 1.

    Args:
        problem: what is wrong, in a few words
        where: the file, folder or option concerned; loaders fill in the file when it is None
        todo: what the user can do about it
    """

    def __init__(
        self,
        problem: str,
        where: str | os.PathLike[str] | None = None,
        todo: str | None = None,
    ) -> None:
        super().__init__(problem, where, todo)
        self.problem = problem
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        text = self.problem if self.where is None else f"{os.fspath(self.where)}: {self.problem}"
        return text if self.todo is None else f"{text}; {self.todo}"


def reject_unused(reason: str, **arguments: object) -> None:
    """Raise UserError for the first argument that is not None, because it would have no effect.

    Names of arguments are in backquotes in the message, so that commands can replace them by
    options.
    """
    for name, value in arguments.items():
        if value is not None:
            raise UserError(reason, name if "`" in name else f"`{name}`")


def check_whole(**arguments: object) -> None:
    """Raise UserError for the first argument that is neither None nor a whole number."""
    for name, value in arguments.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise UserError(f"must be a whole number, not {value!r}", f"`{name}`")


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the advice "did you mean ...?" for an unknown word; None if no known word is near."""
    near = difflib.get_close_matches(word, [*known], n=1)
    return f"did you mean {near[0]}?" if near else None


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from or while handling, outermost first."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def find(error: BaseException) -> UserError | None:
    """Return the UserError in the chain of an exception, if there is one."""
    return next((link for link in chain(error) if isinstance(link, UserError)), None)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip()
