"""The lexicon: tables of words and forms of both languages, read once into immutable entries.

All tables are text in one format (see `read`). An entry pairs one English word, in one reading,
with one German word, so that a translation is a function of the English sentence. Semantic classes
are plain strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

Row = dict[str, str]


@cache
def read(table: str) -> tuple[Row, ...]:
    """Rows of a table of this folder.

    Cells are two or more blanks apart, "-" is an empty one, and so are those missing at the end;
    "#" opens a comment. The first row names the columns.
    """
    text = resources.files(__name__).joinpath(table).read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    header, *rows = [re.split(r"\s{2,}", line) for line in lines if line and line[0] != "#"]
    return tuple(
        {
            name: "" if cell == "-" else cell
            for name, cell in zip(header, row + ["-"] * (len(header) - len(row)), strict=True)
        }
        for row in rows
    )


def words(cell: str) -> frozenset[str]:
    """The members of a cell, which blanks or commas separate."""
    return frozenset(re.findall(r"[^\s,]+", cell))


# --- entries -------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Prepositions with which a noun names a location (dative) or, if not "", a goal."""

    english_at: str
    german_at: str
    english_to: str
    german_to: str
    goal_case: str


@dataclass(frozen=True)
class Noun:
    """``flags`` as in nouns.txt."""

    english: str
    english_plural: str
    german: str
    gender: str
    german_plural: str
    genitive: str
    flags: str
    classes: frozenset[str]
    place: Place | None

    @property
    def countable(self) -> bool:
        return not set("mP") & set(self.flags) and bool(self.german_plural)

    @property
    def proper(self) -> bool:
        return "P" in self.flags


@dataclass(frozen=True)
class Adjective:
    """``classes`` as in adjectives.txt."""

    english: str
    german: str
    classes: frozenset[str]

    def modifies(self, noun: Noun, predicative: bool = False) -> bool:
        predicates = {"." + name for name in noun.classes} if predicative else set()
        fits = bool(self.classes & (noun.classes | predicates))
        return fits and "!" + noun.english not in self.classes

    @property
    def modified(self) -> frozenset[str]:
        """Classes of nouns of which it can be said."""
        return frozenset(name.removeprefix(".") for name in self.classes)


@dataclass(frozen=True)
class Slot:
    """One complement that a verb governs; ``role`` and ``marks`` as in verbs.txt."""

    role: str
    classes: frozenset[str]
    marks: str
    english: str
    german: str
    case: str


@dataclass(frozen=True)
class Verb:
    """``strong``: third person singular, preterite, participle; None of weak verbs."""

    english: str
    english_past: str
    english_participle: str
    particle: str
    german: str
    prefix: str
    reflexive: bool
    strong: tuple[str, ...] | None
    aspect: frozenset[str]
    subjects: frozenset[str]
    slots: tuple[Slot, ...]
    places: frozenset[str]
    manner: frozenset[str]
    causes: tuple[str, ...]

    @property
    def auxiliary(self) -> str:
        return "sein" if "*" in self.aspect else "haben"

    def has(self, *roles: str) -> bool:
        return any(slot.role in roles for slot in self.slots)

    def in_group(self, *groups: str) -> bool:
        """Whether the verb is in one of the groups of verb_groups.txt."""
        return any(self.english in _groups()[group] for group in groups)


class FixedWord(NamedTuple):
    form: str
    lemma: str
    upos: str
    relation: str
    head: int  # index in the phrase, -1 for its head


@dataclass(frozen=True)
class Adverbial:
    """An adverb or frozen phrase; ``german`` pairs a word with indices of English words."""

    english: tuple[FixedWord, ...]
    german: tuple[tuple[str, tuple[int, ...]], ...]
    kind: str
    tags: frozenset[str]
    flags: str

    @property
    def head(self) -> int:
        return next(i for i, word in enumerate(self.english) if word.head < 0)


@dataclass(frozen=True)
class Tense:
    """A row of tenses.txt; ``english``: (auxiliary, relation, shape of what follows)."""

    name: str
    letter: str
    weight: float
    tag: str
    time: float
    finite: str
    english: tuple[tuple[str, ...], ...]
    german: str
    negated: str


@dataclass(frozen=True)
class Determiner:
    """English word and German stem; ``declension``: class of the stem's endings, "" for none."""

    english: str
    german: str
    upos: str
    declension: str
    definite: bool
    sg: float = 0  # weights by number
    pl: float = 0


# --- from rows to entries ------------------------------------------------------------------------

_CASES = {"a": "acc", "d": "dat"}
# Professions and kin are adults, and adults are persons: stated once instead of in every row.
_IMPLIED = {"prof": {"adult", "person"}, "kin": {"adult", "person"}}


def with_s(word: str) -> str:
    """The regular plural of nouns, third person of verbs."""
    if word.endswith(("s", "x", "ch", "sh", "z")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def english_past(verb: str) -> str:
    """The regular preterite; "stop" doubles its consonant, "carry" turns y into i."""
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return (verb + verb[-1] if doubles_consonant(verb) else verb) + "ed"


def doubles_consonant(verb: str) -> bool:
    """Stressed final consonant-vowel-consonant: plan, swim, forget (but not listen, wear, fix)."""
    stressed = len(re.findall(r"[aeiou]+", verb)) == 1 or verb in {"forget", "begin"}
    return stressed and bool(re.search(r"[^aeiou][aeiou][^aeiouwxy]$", verb))


def _noun(row: Row) -> Noun:
    english = row["english"]
    plural = {"": with_s(english), "0": ""}.get(row["plural"], row["plural"])
    flags, _, genitive = row["flags"].partition("gen=")
    classes = {english, *words(row["classes"])}
    classes.update(*(_IMPLIED[name] for name in classes & _IMPLIED.keys()))
    return Noun(
        english, plural, row["german"], row["gender"], row["plurals"], genitive, flags,
        frozenset(classes), _place(row["places"]) if row["places"] else None,
    )  # fmt: skip


def _place(cell: str) -> Place:
    at, german_at, to, german_to, case, *_ = [*re.findall(r"\w+", cell), "", "", ""]
    return Place(at, german_at, to, german_to, _CASES.get(case, ""))


def _slot(cell: str) -> Slot:
    marks = cell[len(cell.rstrip("?@!1~")) :]
    role, *middle, classes = cell.removesuffix(marks).split(":")
    default = ">+d" if role in "di" else ">+a"
    english, german, case = re.split("[>+]", middle[0] if middle else default)
    return Slot(role, words(classes), marks, english.replace("_", " "), german, _CASES[case])


def _verb(row: Row) -> Verb:
    base, _, particle = row["english"].partition("_")
    prefix, _, stem = row["german"].removeprefix("sich ").rpartition("|")
    return Verb(
        english=base,
        english_past=row["past"] or english_past(base),
        english_participle=row["participle"] or english_past(base),
        particle=particle,
        german=stem,
        prefix=prefix,
        reflexive=row["german"].startswith("sich "),
        strong=tuple(row["forms"].split(",")) if row["forms"] else None,
        aspect=frozenset(row["aspect"]),
        subjects=words(row["subject"]),
        slots=tuple(map(_slot, row["complements"].split())),
        places=words(row["places"]),
        manner=words(row["manner"]),
        causes=tuple(filter(None, row["causes"].split(","))),
    )


def _adverbial(row: Row) -> Adverbial:
    cells = row["english"].split()
    head = next(i for i, cell in enumerate(cells) if cell.endswith("*"))
    german = (re.split("[:,]", cell) for cell in row["german"].split())
    return Adverbial(
        tuple(_fixed_word(cell, -1 if i == head else head) for i, cell in enumerate(cells)),
        tuple((form, tuple(int(i) - 1 for i in indices)) for form, *indices in german),
        row["kind"], words(row["tags"]), row["flags"],
    )  # fmt: skip


def _fixed_word(cell: str, head: int) -> FixedWord:
    form, upos, relation = cell.rstrip("*").split("/")
    relation, _, above = relation.partition("@")
    form, _, lemma = form.rstrip(")").partition("(")
    return FixedWord(form, lemma or form, upos, relation, int(above) - 1 if above else head)


def _tense(row: Row) -> Tense:
    chain = tuple(tuple(item.split("/")) for item in row["english"].split())
    return Tense(
        row["name"], row["letter"], float(row["weight"]), row["tag"], float(row["time"]) / 100,
        row["finite"], chain, row["german"], row["negated"],
    )  # fmt: skip


# --- the tables as a whole -----------------------------------------------------------------------

NOUNS = tuple(map(_noun, read("nouns.txt")))
ADJECTIVES = tuple(
    Adjective(row["english"], row["german"], words(row["classes"]))
    for row in read("adjectives.txt")
)
VERBS = tuple(map(_verb, read("verbs.txt")))
ADVERBIALS = tuple(map(_adverbial, read("adverbials.txt")))
TENSES = {row["name"]: _tense(row) for row in read("tenses.txt")}
DETERMINERS = {
    row["key"]: Determiner(
        row["english"], row["german"], row["upos"], row["declension"], bool(row["definite"]),
        float(row["sg"]), float(row["pl"]),
    )
    for row in read("determiners.txt")
}  # fmt: skip
PRONOUNS = {(int(r["person"]), r["number"], r["gender"]): r for r in read("pronouns.txt")}
POSSESSIVES = {
    person: Determiner(row["possessive"], row["stem"], "PRON", "ein", True)
    for person, row in PRONOUNS.items()
}
IRREGULAR = {(row["language"], row["verb"]): row for row in read("irregular.txt")}


@cache
def _groups() -> dict[str, frozenset[str]]:
    return {row["group"]: words(row["verbs"]) for row in read("verb_groups.txt")}


@cache
def nouns_of(classes: frozenset[str], proper: bool = False) -> tuple[Noun, ...]:
    return tuple(noun for noun in NOUNS if noun.classes & classes and noun.proper == proper)


def noun(english: str) -> Noun:
    return next(n for n in NOUNS if n.english == english)


def adjective(english: str) -> Adjective:
    return next(a for a in ADJECTIVES if a.english == english)


def verb(english: str, german: str) -> Verb:
    """``german`` without "sich" and separable prefix."""
    return next(v for v in VERBS if (v.english, v.german) == (english, german))
