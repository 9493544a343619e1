"""Gold trees in CoNLL-U (universaldependencies.org/format.html), as text with words in it.

A word is a span of characters.  The words of a multi-word token share its characters.  Each has
those of its form where the forms make up the token (``do`` + ``n't``), else all of them (``de`` +
``le`` in ``du``).  Empty nodes stand for nothing in the text and are left out.
"""

from __future__ import annotations

import io
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import conllu
from conllu.exceptions import ParseException

from collab_common.errors import UserError
from collab_common.files import open_bytes


class GoldWord(NamedTuple):
    """A word of a tree: its characters ``start`` to ``end``, and the word that it depends on.

    Attributes:
        head: index of a word of the sentence, from 0; None for the root.
        relation: to its head, ``nsubj`` or ``nsubj:pass`` for example.
    """

    start: int
    end: int
    head: int | None
    relation: str


class GoldSentence(NamedTuple):
    """A sentence with its tree."""

    text: str
    words: tuple[GoldWord, ...]


def read(path: Path) -> list[GoldSentence]:
    """Read all sentences of a file, gzipped or not.

    Raises:
        UserError: the file cannot be read, or names the first sentence that is not CoNLL-U.
    """
    found: list[GoldSentence] = []
    with open_bytes(path) as stream:
        try:
            for tokens in conllu.parse_incr(io.TextIOWrapper(stream, "utf-8")):
                found.append(_sentence(tokens))
        except (ParseException, ValueError) as error:
            what = f"sentence {len(found) + 1} is not CoNLL-U: {error}"
            raise UserError(what, path, "fix the file") from error
        except KeyError as error:
            what = f"sentence {len(found) + 1} is not CoNLL-U: a word has no column {error}"
            raise UserError(what, path, "fix the file") from error
    return found


def _sentence(tokens: conllu.TokenList) -> GoldSentence:
    """Put the text together, and the words into it."""
    text = ""
    words: list[GoldWord] = []
    # Ids are numbers, (1, "-", 2) of a multi-word token, (1, ".", 1) of an empty node.
    left = iter([t for t in tokens if isinstance(t["id"], int) or t["id"][1] != "."])
    for token in left:
        parts = [token]
        if not isinstance(token["id"], int):  # its words follow
            first, _, last = token["id"]
            parts = list(islice(left, last - first + 1))
            if len(parts) <= last - first:
                raise ValueError(f"token {first}-{last} lacks words")
        ends = accumulate((len(part["form"]) for part in parts), initial=len(text))
        spans = list(pairwise(ends))
        if "".join(part["form"] for part in parts).lower() != token["form"].lower():
            spans = [(len(text), len(text) + len(token["form"]))] * len(parts)
        for part, span in zip(parts, spans, strict=True):
            _check(part, len(words) + 1, tokens)
            head = part["head"]
            words.append(GoldWord(*span, head - 1 if head else None, part["deprel"]))
        is_joined = (token["misc"] or {}).get("SpaceAfter") == "No"
        text += token["form"] + " " * (not is_joined)
    return GoldSentence(text.rstrip(), tuple(words))


def _check(token: Any, number: int, tokens: conllu.TokenList) -> None:
    """What the parser lets pass: order of the words, and heads that do not exist."""
    if token["id"] != number:
        raise ValueError(f"word {token['id']} where word {number} is expected")
    total = sum(isinstance(one["id"], int) for one in tokens)
    if token["head"] is None or not 0 <= token["head"] <= total or token["head"] == number:
        raise ValueError(f"word {number} has no valid head: {token['head']}")
