"""The lexicon: tables of words and forms of both languages, read once into immutable entries.

All tables are text in one format (see `read`). An entry pairs one English word, in one reading,
with one German word, so that a translation is a function of the English sentence. Semantic classes
are plain strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import NamedTuple, TypeVar

Row = dict[str, str]
Classes = frozenset[str]
E = TypeVar("E")


def read(table: str) -> list[Row]:
    """Rows of a table of this folder.

    Cells are two or more blanks apart, "-" is an empty one, and so are those missing at the end;
    "#" opens a comment. The first row names the columns.
    """
    text = resources.files(__name__).joinpath(table).read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    header, *rows = [re.split(r"\s{2,}", line) for line in lines if line and line[0] != "#"]
    return [
        {name: cell.lstrip("-") for name, cell in zip_longest(header, row, fillvalue="")}
        for row in rows
    ]


def words(cell: str) -> Classes:
    """The members of a cell, which blanks or commas separate."""
    return frozenset(re.findall(r"[^\s,]+", cell))


# --- entries, whose fields are the columns of their table -----------------------------------------


class Preposition(NamedTuple):
    """``english`` and ``german`` are "" for none; ``case`` is what the German one governs."""

    english: str
    german: str
    case: str


NO_PREPOSITION = Preposition("", "", "acc")


class Noun(NamedTuple):
    english: str
    plural: str
    german: str
    gender: str
    german_plural: str
    flags: str
    classes: Classes
    at: Preposition
    to: Preposition


class Adjective(NamedTuple):
    english: str
    german: str
    stem: str
    classes: Classes

    def modifies(self, classes: Classes) -> bool:
        """Whether it suits nouns of these classes."""
        return bool(self.classes & classes) and not any("!" + c in self.classes for c in classes)


class Slot(NamedTuple):
    """One complement that a verb governs."""

    kind: str
    classes: Classes
    preposition: Preposition


class Verb(NamedTuple):
    english: str
    particle: str
    english_forms: str
    german: str
    prefix: str
    german_forms: str
    tenses: Classes
    groups: Classes
    subjects: Classes
    slots: tuple[Slot, ...]
    places: Classes
    manner: Classes


class Adverbial(NamedTuple):
    english: str
    german: str
    kind: str
    tags: Classes
    opens: bool


class Tense(NamedTuple):
    name: str
    letter: str
    weight: float
    tag: str
    time: float
    finite: str
    english: str
    following: str
    german: str


class Determiner(NamedTuple):
    """Also a possessive."""

    english: str
    german: str
    upos: str
    relation: str
    declension: str
    adjective: str
    definite: bool
    sg: float = 0
    pl: float = 0


def _preposition(cell: str) -> Preposition:
    return Preposition(*re.split("[>+]", cell)) if cell else NO_PREPOSITION


def _slot(cell: str) -> Slot:
    kind, *preposition, classes = cell.split(":")
    return Slot(kind, words(classes), _preposition("".join(preposition)))


_READERS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("classes", "tags", "groups", "subjects", "places", "manner"), words),
    **dict.fromkeys(("weight", "time", "sg", "pl"), float),
    **dict.fromkeys(("definite", "opens"), bool),
    **dict.fromkeys(("at", "to"), _preposition),
    "tenses": frozenset,
    "slots": lambda cell: tuple(map(_slot, cell.split())),
}


def _entries(table: str, kind: Callable[..., E]) -> list[E]:
    rows = read(table)
    return [kind(**{key: _READERS.get(key, str)(cell) for key, cell in r.items()}) for r in rows]


NOUNS = [n._replace(classes=n.classes | {n.english}) for n in _entries("nouns.txt", Noun)]
ADJECTIVES = _entries("adjectives.txt", Adjective)
VERBS = _entries("verbs.txt", Verb)
ADVERBIALS = _entries("adverbials.txt", Adverbial)
TENSES = {tense.name: tense for tense in _entries("tenses.txt", Tense)}
DETERMINERS = {entry.english: entry for entry in _entries("determiners.txt", Determiner)}
ENDINGS = {(row["class"], row["gender"]): row for row in read("declension.txt")}
IRREGULAR = {(row["language"], row["verb"]): row for row in read("irregular.txt")}
# By person, number and gender.
PRONOUNS = {(int(r["person"]), r["number"], r["gender"]): r for r in read("pronouns.txt")}
POSSESSIVES = {
    person: Determiner(row["possessive"], row["stem"], "PRON", "nmod:poss", "ein", "mixed", True)
    for person, row in PRONOUNS.items()
    if row["possessive"]
}


@cache
def nouns_of(classes: Classes, needs: str = "") -> list[Noun]:
    """``needs``: "at" or "to", a preposition that the nouns must have."""
    fitting = [noun for noun in NOUNS if noun.classes & classes]
    return [n for n in fitting if not needs or getattr(n, needs).german]


@cache
def verbs_of(letter: str, group: str = "") -> list[Verb]:
    """Verbs that take a tense and are of a group; of no group, those that can stand alone."""
    special = {"copula", "weather", "that", "whether", "zu"}
    fitting = [verb for verb in VERBS if letter in verb.tenses]
    return [v for v in fitting if (group in v.groups if group else not v.groups & special)]
