"""From rows of the tables to entries; forms that a table leaves out follow the regular rule."""

from __future__ import annotations

import re
from importlib import resources

from data_prep.embedded.lexicon.entries import (
    Adjective,
    Adverbial,
    FixedWord,
    FrameSlot,
    Noun,
    PlaceUse,
    Verb,
)

EMPTY = "-"


def rows(table: str) -> list[list[str]]:
    """Rows of a table of this package: columns are two or more blanks apart."""
    text = resources.files("data_prep.embedded.lexicon").joinpath(table).read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    return [re.split(r"\s{2,}", line) for line in lines if line and not line.startswith("#")]


def _value(cell: str) -> str:
    return "" if cell == EMPTY else cell


def _set(cell: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(filter(None, _value(cell).split(separator)))


def english_plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


# Professions and kin are adults, and adults are persons: stated once instead of in every row.
_IMPLIED = {"prof": {"adult", "person"}, "kin": {"adult", "person"}}


def _closure(classes: set[str]) -> frozenset[str]:
    for name in tuple(classes):
        classes |= _IMPLIED.get(name, set())
    return frozenset(classes)


def _place(cell: str) -> PlaceUse | None:
    if cell == EMPTY:
        return None
    at, towards = cell.split(">")
    english_at, german_at = at.split(":")
    if towards == EMPTY:
        return PlaceUse(english_at, german_at, "", "", "")
    english_to, goal = towards.split(":")
    german_to, case = goal.split("+")
    return PlaceUse(english_at, german_at, english_to, german_to, CASES[case])


CASES = {"a": "acc", "d": "dat"}


def noun(row: list[str]) -> Noun:
    english, plural, german, gender, german_plural, flags, classes, *place = row
    letters, _, genitive = flags.partition("gen=")
    letters = letters.strip("-")
    return Noun(
        english=english,
        english_plural={"-": english_plural(english), "0": ""}.get(plural, plural),
        german=german,
        gender=gender,
        german_plural=_value(german_plural),
        classes=_closure({english, *classes.split()}),
        weak="n" in letters,
        mass="m" in letters,
        plural_only="p" in letters,
        bare="b" in letters,
        genitive=genitive,
        place=_place(place[0]) if place else None,
    )


def name(row: list[str]) -> Noun:
    english, german, gender, classes = row
    kinds = _closure({english, "name", *classes.split()})
    return Noun(english, "", german, gender, "", kinds, bare=True, proper=True)


def adjective(row: list[str]) -> Adjective:
    english, comparative, german, german_comparative, classes = row
    words = classes.split()
    if not comparative.strip("-") and german_comparative != EMPTY:
        comparative = "more " + english
    return Adjective(
        english,
        _value(comparative),
        german,
        _value(german_comparative),
        frozenset(w for w in words if w[0] not in ".!"),
        frozenset(w[1:] for w in words if w[0] == "."),
        frozenset(w[1:] for w in words if w[0] == "!"),
    )


_SLOT_MARKS = "?@!1~"


def _slot(cell: str) -> FrameSlot:
    marks = cell[len(cell.rstrip(_SLOT_MARKS)) :]
    role, *middle, classes = cell.rstrip(_SLOT_MARKS).split(":")
    wanted, optional, own = _set(classes, ","), "?" in marks, "!" in marks
    if role != "p":
        case = "dat" if role in "di" else "acc"
        one, bare = "1" in marks, "~" in marks
        return FrameSlot(role, wanted, optional, case=case, own=own, singular=one, bare=bare)
    english, german = middle[0].split(">")
    preposition, letter = german.split("+")
    english = english.replace("_", " ")
    ground, one = "@" in marks, "1" in marks
    return FrameSlot(role, wanted, optional, english, preposition, CASES[letter], ground, own, one)


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


def verb(row: list[str]) -> Verb:
    english, past, participle, german, forms, aspect, subjects, slots, places, manner, causes = row
    base, _, particle = english.partition("_")
    reflexive = german.startswith("sich ")
    prefix, _, stem = german.removeprefix("sich ").rpartition("|")
    strong = tuple(forms.split(","))
    return Verb(
        english=base,
        english_past=_value(past) or english_past(base),
        english_participle=_value(participle) or english_past(base),
        particle=particle,
        german=stem,
        prefix=prefix,
        reflexive=reflexive,
        strong=(strong[0], strong[1], strong[2]) if len(strong) == 3 else None,
        auxiliary="sein" if "*" in aspect else "haben",
        aspect=_set(aspect) if aspect == EMPTY else frozenset(aspect),
        subjects=_set(subjects, ","),
        slots=tuple(_slot(cell) for cell in _value(slots).split()),
        places=_set(places, ","),
        manner=_set(manner, ","),
        causes=tuple(_value(causes).split(",")) if _value(causes) else (),
    )


def adverbial(row: list[str]) -> Adverbial:
    english, german, kind, tenses, *flags = row
    words = english.split()
    head = next(i for i, word in enumerate(words) if word.endswith("*"))
    fixed = tuple(_fixed_word(word.rstrip("*"), i, head) for i, word in enumerate(words))
    pairs = tuple(_aligned(word) for word in german.split())
    flag = flags[0] if flags else EMPTY
    groups = _set(flag) if kind in {"manner", "place"} else frozenset()
    opens = "" if groups else flag
    return Adverbial(fixed, pairs, kind, _set(tenses, ","), "f" in opens, "c" in opens, groups)


def _fixed_word(word: str, index: int, phrase_head: int) -> FixedWord:
    form, upos, relation = word.split("/")
    relation, _, above = relation.partition("@")
    form, _, lemma = form.rstrip(")").partition("(")
    if index == phrase_head:
        return FixedWord(form, lemma or form, upos, relation, -1)
    return FixedWord(form, lemma or form, upos, relation, int(above) - 1 if above else phrase_head)


def _aligned(word: str) -> tuple[str, tuple[int, ...]]:
    form, _, indices = word.partition(":")
    return form, tuple(int(i) - 1 for i in indices.split(","))
