"""Gold trees in CoNLL-U (universaldependencies.org/format.html), as text with words in it.

A word is a span of characters.  The words of a multi-word token share its characters: each has
those of its form where the forms make the token up (``do`` + ``n't``), else all of them
(``de`` + ``le`` in ``du``).  Empty nodes stand for nothing in the text, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


def read(path: Path) -> Iterator[Sentence]:
    """The sentences of a file, gzipped or not.

    Raises:
        UserError: it cannot be read, or a line is not CoNLL-U; says which.
    """
    block: list[_Row] = []
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, 1):
            where = f"{path}:{number}"
            text = _decoded(line, where)
            if text.startswith("#"):
                continue
            if text.strip():
                block.append(_row(text, where))
            elif block:
                yield _sentence(block)
                block = []
    if block:
        yield _sentence(block)


@dataclass(frozen=True)
class _Row:
    """A line of a tree: words ``first`` to ``last`` for a multi-word token."""

    where: str
    first: int
    last: int
    is_range: bool
    is_empty: bool
    form: str
    head: str
    relation: str
    space_after: bool


def _refuse(what: str, where: str) -> UserError:
    return UserError(what, where, "mend the CoNLL-U file")


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise _refuse(f"not UTF-8 (byte {error.start + 1})", where) from None


def _row(text: str, where: str) -> _Row:
    columns = text.split("\t")
    if len(columns) != COLUMNS:
        raise _refuse(f"{len(columns)} columns between tabs, not {COLUMNS}", where)
    number, form, head, relation = columns[0], columns[1], columns[6], columns[7]
    is_empty, is_range = "." in number, "-" in number
    first, _, last = number.partition("." if is_empty else "-")
    if not (first.isdecimal() and (last.isdecimal() or not (is_empty or is_range))):
        raise _refuse(f"{number!r} is no number of a word", where)
    # A lone underscore is a form only if it is its own lemma, too: else it stands for none.
    if not form.strip() or (form == "_" and columns[2] != "_" and not is_empty):
        raise _refuse("the word has no form", where)
    return _Row(
        where, int(first), int(last or first), is_range, is_empty, form.strip(), head, relation,
        "SpaceAfter=No" not in columns[9].split("|"),
    )  # fmt: skip


def _sentence(block: list[_Row]) -> Sentence:
    """Put the text together, and the words into it."""
    total = sum(not (row.is_empty or row.is_range) for row in block)
    text, words = "", []
    for token, parts in _tokens(block):
        spans = _spans(token.form, [part.form for part in parts], len(text))
        for part, (start, end) in zip(parts, spans, strict=True):
            words.append(Word(start, end, _head(part, total), part.relation))
        text += token.form + " " * token.space_after
    return Sentence(text.rstrip(), tuple(words))


def _tokens(block: list[_Row]) -> Iterator[tuple[_Row, list[_Row]]]:
    """The tokens of the text, each with its words: itself, unless it is a multi-word token."""
    rows = [row for row in block if not row.is_empty]
    place, due = 0, 1
    while place < len(rows):
        token = rows[place]
        words = rows[place + token.is_range :][: token.last - token.first + 1]
        if token.first != due:
            raise _refuse(f"word {token.first} where {due} is due", token.where)
        numbers = [row.first for row in words if not row.is_range]
        if not numbers or numbers != list(range(token.first, token.last + 1)):
            raise _refuse(f"words {token.first} to {token.last} do not follow", token.where)
        place, due = place + token.is_range + len(words), token.last + 1
        yield token, words


def _spans(token: str, forms: list[str], start: int) -> list[tuple[int, int]]:
    """The characters of each word of a token that begins at ``start``."""
    if "".join(forms).lower() != token.lower():
        return [(start, start + len(token))] * len(forms)
    ends = [start + len("".join(forms[: i + 1])) for i in range(len(forms))]
    return list(zip([start, *ends[:-1]], ends, strict=True))


def _head(row: _Row, total: int) -> int | None:
    if not row.head.isdecimal() or int(row.head) > total:
        raise _refuse(f"its head {row.head!r} is no word of the sentence", row.where)
    if int(row.head) == row.first:
        raise _refuse("the word is its own head", row.where)
    return int(row.head) - 1 if int(row.head) else None
