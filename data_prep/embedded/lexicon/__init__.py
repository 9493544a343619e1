"""The lexicon: tables of words and forms of both languages, read once into immutable entries.

All tables are text in one format (see `read`). An entry pairs one English word, in one reading,
with one German word, so that a translation is a function of the English sentence. Semantic classes
are plain strings.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import NamedTuple

Row = dict[str, str]
Classes = frozenset[str]
# Forms of a verb by name: 1sg, 3sg, pl, past, past_pl, participle, base, and English ing.
Paradigm = dict[str, str]


def read(table: str) -> list[Row]:
    """Rows of a table of this folder.

    Cells are two or more blanks apart, "-" is an empty one, and so are those missing at the end;
    "#" opens a comment. The first row names the columns.
    """
    text = resources.files(__name__).joinpath(table).read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    header, *rows = [re.split(r"\s{2,}", line) for line in lines if line and line[0] != "#"]
    return [
        {
            name: "" if cell == "-" else cell
            for name, cell in zip(header, row + ["-"] * (len(header) - len(row)), strict=True)
        }
        for row in rows
    ]


def words(cell: str) -> Classes:
    """The members of a cell, which blanks or commas separate."""
    return frozenset(re.findall(r"[^\s,]+", cell))


# --- entries -------------------------------------------------------------------------------------


class Preposition(NamedTuple):
    """``english`` and ``german`` are "" for none; ``case`` is what the German one governs."""

    english: str
    german: str
    case: str


class Noun(NamedTuple):
    """``flags`` as in nouns.txt; ``at`` and ``to``: as a location and as a goal."""

    english: str
    english_plural: str
    german: str
    gender: str
    german_plural: str
    flags: str
    classes: Classes
    at: Preposition | None
    to: Preposition | None

    @property
    def countable(self) -> bool:
        return bool(self.german_plural) and not ("single" in self.classes or "m" in self.flags)


class Adjective(NamedTuple):
    """``stem``: the German form before an ending; ``classes`` as in adjectives.txt."""

    english: str
    german: str
    stem: str
    classes: Classes

    def modifies(self, classes: Classes) -> bool:
        """Whether it suits nouns of these classes."""
        return bool(self.classes & classes) and not any("!" + c in self.classes for c in classes)


class Slot(NamedTuple):
    """One complement that a verb governs; ``kind`` as in verbs.txt."""

    kind: str
    classes: Classes
    preposition: Preposition


class Verb(NamedTuple):
    """``english`` without its ``particle``, ``german`` without its separable ``prefix``."""

    english: str
    particle: str
    english_forms: Paradigm
    german: str
    prefix: str
    german_forms: Paradigm
    tenses: Classes
    groups: Classes
    subjects: Classes
    slots: tuple[Slot, ...]
    places: Classes
    manner: Classes

    def has(self, kind: str) -> bool:
        return any(slot.kind == kind for slot in self.slots)


class Adverbial(NamedTuple):
    """An adverb or frozen phrase; ``english``: rows of form, part of speech, relation."""

    english: tuple[tuple[str, str, str], ...]
    head: int
    german: tuple[str, ...]
    kind: str
    tags: Classes
    flags: str


class Tense(NamedTuple):
    """A row of tenses.txt; ``english``: the auxiliary and the form of the verb behind it."""

    name: str
    letter: str
    weight: float
    tag: str
    time: float
    finite: str
    english: tuple[str, ...]
    german: str


class Determiner(NamedTuple):
    """A row of determiners.txt, or a possessive."""

    english: str
    german: str
    upos: str
    relation: str
    declension: str
    adjective: str
    definite: bool
    sg: float = 0
    pl: float = 0


# --- from rows to entries ------------------------------------------------------------------------


def with_s(word: str) -> str:
    """The regular plural of nouns, third person of verbs."""
    if word.endswith(("s", "x", "ch", "sh", "z")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def english_paradigm(base: str, listed: str) -> Paradigm:
    """``listed``: preterite, participle and -ing form; left out where they are regular."""
    stem = base.removesuffix("e")
    past = base[:-1] + "ied" if base.endswith("y") and base[-2] not in "aeiou" else stem + "ed"
    forms = listed.split(",") if listed else []
    past, participle, ing = [*forms, *[past, past, stem + "ing"][len(forms) :]]
    return {
        "base": base, "1sg": base, "3sg": with_s(base), "pl": base, "past": past, "past_pl": past,
        "participle": participle, "ing": ing, **IRREGULAR.get(("en", base), {}),
    }  # fmt: skip


def german_paradigm(infinitive: str, listed: str) -> Paradigm:
    """``listed``: third person singular, preterite and participle; "" if they are regular."""
    stem = infinitive.removesuffix("n").removesuffix("e")
    regular = f"{stem}t,{stem}te,ge{stem}t"
    third, past, participle = (listed or regular).split(",")
    return {
        "base": infinitive, "1sg": stem + "e", "3sg": third, "pl": infinitive, "past": past,
        "past_pl": past + ("n" if past.endswith("e") else "en"), "participle": participle,
        **IRREGULAR.get(("de", infinitive), {}),
    }  # fmt: skip


def _preposition(cell: str) -> Preposition:
    english, german, case = re.split("[>+]", cell)
    return Preposition(english.replace("_", " "), german, case)


def _noun(row: Row) -> Noun:
    english = row["english"]
    plural = {"": with_s(english), "0": ""}.get(row["plural"], row["plural"])
    at, to = (_preposition(row[name]) if row[name] else None for name in ("at", "to"))
    classes = words(row["classes"]) | {english}
    german, gender = row["german"], row["gender"]
    return Noun(english, plural, german, gender, row["plurals"], row["flags"], classes, at, to)


def _slot(cell: str) -> Slot:
    kind, *preposition, classes = cell.split(":")
    return Slot(kind, words(classes), _preposition(preposition[0] if preposition else ">+acc"))


def _verb(row: Row) -> Verb:
    base, _, particle = row["english"].partition("_")
    prefix, _, german = row["german"].rpartition("|")
    return Verb(
        base, particle, english_paradigm(base, row["en_forms"]),
        german, prefix, german_paradigm(german, row["de_forms"]),
        frozenset(row["tenses"]), words(row["groups"]), words(row["subject"]),
        tuple(map(_slot, row["complements"].split())), words(row["places"]), words(row["manner"]),
    )  # fmt: skip


def _adverbial(row: Row) -> Adverbial:
    cells = row["english"].split()
    head = next(i for i, cell in enumerate(cells) if cell.endswith("*"))
    analysed = (cell.rstrip("*").split("/") for cell in cells)
    english = tuple((form, upos, relation) for form, upos, relation in analysed)
    german = tuple(row["german"].split())
    return Adverbial(english, head, german, row["kind"], words(row["tags"]), row["flags"])


def _tense(row: Row) -> Tense:
    return Tense(
        row["name"], row["letter"], float(row["weight"]), row["tag"], float(row["time"]) / 100,
        row["finite"], tuple(filter(None, row["english"].split("/"))), row["german"],
    )  # fmt: skip


def _determiner(row: Row) -> Determiner:
    return Determiner(
        row["english"], row["german"], row["upos"], row["relation"], row["class"],
        row["adjective"], bool(row["definite"]), float(row["sg"]), float(row["pl"]),
    )  # fmt: skip


# --- the tables as a whole -----------------------------------------------------------------------

_FINITE = ("1sg", "3sg", "pl", "past", "past_pl")
IRREGULAR = {
    (row["language"], row["verb"]): {form: row[form] for form in _FINITE}
    for row in read("irregular.txt")
}
NOUNS = tuple(map(_noun, read("nouns.txt")))
ADJECTIVES = tuple(
    Adjective(row["english"], row["german"], row["stem"] or row["german"], words(row["classes"]))
    for row in read("adjectives.txt")
)
VERBS = tuple(map(_verb, read("verbs.txt")))
ADVERBIALS = tuple(map(_adverbial, read("adverbials.txt")))
TENSES = {row["name"]: _tense(row) for row in read("tenses.txt")}
DETERMINERS = {row["english"]: _determiner(row) for row in read("determiners.txt")}
ENDINGS = {(row["class"], row["gender"]): row for row in read("declension.txt")}
# By person, number and gender.
PRONOUNS = {(int(r["person"]), r["number"], r["gender"]): r for r in read("pronouns.txt")}
POSSESSIVES = {
    person: Determiner(
        row["possessive"], row["stem"], "PRON", "nmod:poss", "ein", "mixed", definite=True
    )
    for person, row in PRONOUNS.items()
}


@cache
def nouns_of(classes: Classes, needs: str = "") -> tuple[Noun, ...]:
    """``needs``: "at" or "to", a preposition that the nouns must have."""
    return tuple(n for n in NOUNS if n.classes & classes and (not needs or getattr(n, needs)))


@cache
def verbs_of(letter: str, group: str = "") -> tuple[Verb, ...]:
    """Verbs that take a tense and are of a group; of no group, those that can stand alone."""
    special = {"copula", "weather", "that", "whether", "zu"}
    return tuple(
        verb
        for verb in VERBS
        if letter in verb.tenses and (group in verb.groups if group else not verb.groups & special)
    )


def noun(english: str) -> Noun:
    return next(n for n in NOUNS if n.english == english)


def verb(english: str, german: str) -> Verb:
    """``german`` without its separable prefix."""
    return next(v for v in VERBS if (v.english, v.german) == (english, german))
