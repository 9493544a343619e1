"""Errors that a user can mend: one line in place of a traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator


class UserError(Exception):
    """Something that the user can mend: what is wrong, where, and what to do about it.

    Raise it from anywhere below one of fairseq's commands, `load_state_dict` included: the
    command then prints `fairseq-train: error: WHERE: WHAT; TODO` and exits with status 1.
    Whatever reads a file or an option may raise it; docstrings say so where it tells more.

    Args:
        what: what is wrong, in a few words
        where: the file, folder or option concerned; loaders fill in the file when it is None
        todo: what the user can do about it
    """

    def __init__(
        self,
        what: str,
        where: str | os.PathLike[str] | None = None,
        todo: str | None = None,
    ) -> None:
        super().__init__(what, where, todo)
        self.what = what
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        text = self.what if self.where is None else f"{os.fspath(self.where)}: {self.what}"
        return text if self.todo is None else f"{text}; {self.todo}"


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and what it was raised from or while handling, outermost first."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def find(error: BaseException) -> UserError | None:
    """Returns the UserError behind an exception, if there is one."""
    return next((link for link in chain(error) if isinstance(link, UserError)), None)


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or its type where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
