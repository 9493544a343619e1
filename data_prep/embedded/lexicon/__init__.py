"""The bilingual lexicon: tables of content words, read once into immutable entries.

An entry pairs one English word (in one reading) with one German word, so that a translation is a
function of the English sentence. Semantic classes are plain strings; a noun also belongs to the
class named by its own English form, so that a verb may select single nouns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from data_prep.embedded.lexicon import tables
from data_prep.embedded.lexicon.entries import (
    Adjective,
    Adverbial,
    Cause,
    FixedWord,
    FrameSlot,
    Noun,
    PlaceUse,
    Verb,
)
from data_prep.embedded.lexicon.tables import doubles_consonant, english_past, english_plural

__all__ = [
    "Adjective",
    "Adverbial",
    "Cause",
    "FixedWord",
    "FrameSlot",
    "Lexicon",
    "Noun",
    "PlaceUse",
    "Verb",
    "doubles_consonant",
    "english_past",
    "english_plural",
    "load",
]


@dataclass(frozen=True)
class Lexicon:
    nouns: tuple[Noun, ...]
    names: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    verbs: tuple[Verb, ...]
    adverbials: tuple[Adverbial, ...]
    causes: tuple[Cause, ...]

    def noun(self, english: str) -> Noun:
        return next(n for n in (*self.nouns, *self.names) if n.english == english)

    def adjective(self, english: str) -> Adjective:
        return next(a for a in self.adjectives if a.english == english)

    def verb(self, english: str, german: str) -> Verb:
        """``german`` without "sich" and separable prefix."""
        return next(v for v in self.verbs if (v.english, v.german) == (english, german))

    def cause(self, key: str) -> Cause:
        return next(c for c in self.causes if c.key == key)

    def adverbial(self, text: str) -> Adverbial:
        return next(a for a in self.adverbials if a.text == text)

    def nouns_of(self, classes: frozenset[str]) -> tuple[Noun, ...]:
        return _of_classes("nouns", classes)

    def names_of(self, classes: frozenset[str]) -> tuple[Noun, ...]:
        return _of_classes("names", classes)


@cache
def _of_classes(table: str, classes: frozenset[str]) -> tuple[Noun, ...]:
    nouns = load().nouns if table == "nouns" else load().names
    return tuple(noun for noun in nouns if noun.classes & classes)


@lru_cache(maxsize=1)
def load() -> Lexicon:
    """The lexicon; read from the tables on first use."""
    return Lexicon(
        nouns=tuple(map(tables.noun, tables.rows("nouns.txt"))),
        names=tuple(map(tables.name, tables.rows("names.txt"))),
        adjectives=tuple(map(tables.adjective, tables.rows("adjectives.txt"))),
        verbs=tuple(map(tables.verb, tables.rows("verbs.txt"))),
        adverbials=tuple(map(tables.adverbial, tables.rows("adverbials.txt"))),
        causes=tuple(Cause(*row) for row in tables.rows("causes.txt")),
    )
