"""Errors that a user can mend, told in one line instead of a traceback."""

from __future__ import annotations

import os


class UserError(Exception):
    """Something that the user can mend: what is wrong, where, and what to do about it.

    Raise it from anywhere below one of fairseq's commands, `load_state_dict` included: the
    command then prints `fairseq-train: error: WHERE: WHAT; TODO` and exits with status 1.

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
