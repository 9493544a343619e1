"""A sentence pair with its analysis, and the realisation of abstract trees as pairs."""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded.syntax import english, german
from data_prep.embedded.syntax.nodes import Clause


@dataclass(frozen=True)
class EnglishToken:
    """One word of the dependency tree; ``head`` is 1-based, 0 for the root."""

    form: str
    lemma: str
    upos: str
    head: int
    relation: str
    space_after: bool = True


@dataclass(frozen=True)
class Pair:
    """``alignment``: pairs of 0-based English and German token positions, sorted."""

    english: str
    german: str
    english_tokens: tuple[EnglishToken, ...]
    german_tokens: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    construction: str = ""


def realise(node: Clause, form: str, stop: str, construction: str = "") -> Pair:
    """``form``: main, question or imperative; ``stop``: the closing punctuation mark."""
    source = english.sentence(node, form, stop)
    target = german.sentence(node, form, stop)
    position = {id(token): i for i, token in enumerate(source)}
    tokens = []
    for i, token in enumerate(source):
        glued_next = i + 1 < len(source) and source[i + 1].glued
        head = 0 if token.head is None else position[id(token.head)] + 1
        tokens.append(
            EnglishToken(token.form, token.lemma, token.upos, head, token.relation, not glued_next)
        )
    alignment = tuple(
        (i, j)
        for i, token in enumerate(source)
        for j, word in enumerate(target)
        if token.keys & word.keys
    )
    return Pair(
        english=_join([(t.form, t.glued) for t in source]),
        german=_join([(w.form, w.glued) for w in target]),
        english_tokens=tuple(tokens),
        german_tokens=tuple(w.form for w in target),
        alignment=alignment,
        construction=construction,
    )


def _join(words: list[tuple[str, bool]]) -> str:
    text = "".join(("" if glued else " ") + form for form, glued in words)
    return text.strip()
