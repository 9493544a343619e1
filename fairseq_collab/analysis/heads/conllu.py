"""Gold trees in CoNLL-U (universaldependencies.org/format.html), as text with words in it.

A word is a span of characters.  The words of a multi-word token share its characters: each has
those of its form where the forms make the token up (``do`` + ``n't``), else all of them
(``de`` + ``le`` in ``du``).  Empty nodes stand for nothing in the text, and are left out.

Read here and not by a package: the words' characters are what is wanted, and a fault is to be
named by its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple

from collab_common.errors import UserError
from collab_common.files import open_bytes

COLUMNS = 10


class Word(NamedTuple):
    """A word of a tree: its characters ``start`` to ``end``, and what it depends on.

    Attributes:
        head: which word of the sentence, from 0; None for the root.
        relation: to its head, such as ``nsubj`` or ``nsubj:pass``.
    """

    start: int
    end: int
    head: int | None
    relation: str


class Sentence(NamedTuple):
    """A sentence with its tree."""

    text: str
    words: tuple[Word, ...]


class _Row(NamedTuple):
    """A line of a tree: a word (no ``last``), or a token of the words ``first`` to ``last``."""

    where: str
    first: int
    last: int | None
    form: str
    head: str
    relation: str
    space_after: bool


def read(path: Path) -> Iterator[Sentence]:
    """The sentences of a file, gzipped or not; UserError names the line that is not CoNLL-U."""
    rows: list[_Row] = []
    with open_bytes(path) as stream:
        for number, line in enumerate(chain(stream, [b""]), 1):
            where = f"{path}:{number}"
            try:
                text = line.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise _refuse(f"not UTF-8 (byte {error.start + 1})", where) from None
            if text.startswith("#"):
                continue
            if text.strip():
                rows += _rows(text, where)
            elif rows:
                yield _sentence(rows)
                rows = []


def _refuse(what: str, where: str) -> UserError:
    return UserError(what, where, "mend the CoNLL-U file")


def _rows(text: str, where: str) -> list[_Row]:
    """The row of a line; none of an empty node."""
    columns = text.split("\t")
    if len(columns) != COLUMNS:
        raise _refuse(f"{len(columns)} columns between tabs, not {COLUMNS}", where)
    number, form, lemma = columns[0], columns[1].strip(), columns[2]
    if not (match := re.fullmatch(r"(\d+)(?:-(\d+)|(\.\d+))?", number)):
        raise _refuse(f"{number!r} is no number of a word", where)
    first, last, is_empty_node = match.groups()
    if is_empty_node:
        return []
    # A lone underscore is a form only if it is its own lemma, too: else it stands for none.
    if not form or (form == "_" and lemma != "_"):
        raise _refuse("the word has no form", where)
    space_after = "SpaceAfter=No" not in columns[9].split("|")
    place = int(first), int(last) if last else None
    return [_Row(where, *place, form, columns[6], columns[7], space_after)]


def _sentence(rows: list[_Row]) -> Sentence:
    """Put the text together, and the words into it."""
    total = sum(row.last is None for row in rows)
    text = ""
    words: list[Word] = []
    left = iter(rows)
    for token in left:
        if token.first != len(words) + 1:
            raise _refuse(f"word {token.first} where {len(words) + 1} is due", token.where)
        parts = [token]
        if token.last is not None:  # a multi-word token, whose words come after it
            due = [*range(token.first, token.last + 1)]
            parts = list(islice(left, len(due)))
            if not due or [part.first for part in parts if part.last is None] != due:
                raise _refuse(f"words {token.first} to {token.last} do not follow", token.where)
        ends = accumulate((len(part.form) for part in parts), initial=len(text))
        spans = list(pairwise(ends))
        if "".join(part.form for part in parts).lower() != token.form.lower():
            spans = [(len(text), len(text) + len(token.form))] * len(parts)
        for part, span in zip(parts, spans, strict=True):
            words.append(Word(*span, _head(part, total), part.relation))
        text += token.form + " " * token.space_after
    return Sentence(text.rstrip(), tuple(words))


def _head(row: _Row, total: int) -> int | None:
    if not row.head.isdecimal() or int(row.head) > total:
        raise _refuse(f"its head {row.head!r} is no word of the sentence", row.where)
    if int(row.head) == row.first:
        raise _refuse("the word is its own head", row.where)
    return int(row.head) - 1 if int(row.head) else None
