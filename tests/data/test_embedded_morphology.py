"""Inflection of the embedded corpus, against forms known right by hand."""

from __future__ import annotations

import pytest

from data_prep.embedded import english, forms, german
from data_prep.embedded.lexicon import ADJECTIVES, DETERMINERS, NOUNS, POSSESSIVES, VERBS, Verb
from data_prep.embedded.tree import NounPhrase

PERSONS = [
    NounPhrase(person=person, number=number) for person, number in ((1, "sg"), (3, "sg"), (1, "pl"))
]


def verb(base: str, infinitive: str, prefix: str = "") -> Verb:
    wanted = (base, infinitive, prefix)
    return next(v for v in VERBS if (v.english, v.german, v.prefix) == wanted)


@pytest.mark.parametrize(
    ("determiner", "adjective", "noun", "number", "case", "phrase"),
    [
        # weak, after der-words
        ("the", "old", "man", "sg", "nom", "der alte Mann"),
        ("the", "young", "woman", "sg", "dat", "der jungen Frau"),
        ("this", "small", "child", "sg", "acc", "dieses kleine Kind"),
        ("these", "small", "child", "pl", "dat", "diesen kleinen Kindern"),
        ("which", "clever", "student", "sg", "acc", "welchen klugen Studenten"),
        # mixed, after ein-words
        ("a", "old", "man", "sg", "nom", "ein alter Mann"),
        ("a", "new", "book", "sg", "acc", "ein neues Buch"),
        ("a", "good", "idea", "sg", "dat", "einer guten Idee"),
        ("my", "old", "boy", "sg", "dat", "meinem alten Jungen"),
        ("her", "small", "bird", "pl", "acc", "ihre kleinen Vögel"),
        # strong
        ("", "cold", "milk", "sg", "dat", "kalter Milch"),
        ("", "cold", "water", "sg", "acc", "kaltes Wasser"),
        ("two", "red", "apple", "pl", "dat", "zwei roten Äpfeln"),
        ("many", "expensive", "house", "pl", "nom", "viele teure Häuser"),
        ("some", "dark", "room", "pl", "acc", "einige dunkle Zimmer"),
    ],
)
def test_declension(
    determiner: str, adjective: str, noun: str, number: str, case: str, phrase: str
) -> None:
    determiners = {**DETERMINERS, **{d.english: d for d in POSSESSIVES.values()}}
    np = NounPhrase(
        next(n for n in NOUNS if n.english == noun),
        number,
        determiner=determiners[determiner],
        adjective=next(a for a in ADJECTIVES if a.english == adjective),
    )
    assert " ".join(w.form for w in german.noun_phrase(np, case)) == phrase


def test_relative_pronouns() -> None:
    man, woman, child = (
        next(n for n in NOUNS if n.english == e) for e in ("man", "woman", "child")
    )
    table = {
        (man, "sg"): ("der", "den", "dem"),
        (woman, "sg"): ("die", "die", "der"),
        (child, "sg"): ("das", "das", "dem"),
        (man, "pl"): ("die", "die", "denen"),
    }
    for (noun, number), expected in table.items():
        np = NounPhrase(number=number, role="that", antecedent=noun)
        assert tuple(forms.pronoun(np, case) for case in ("nom", "acc", "dat")) == expected


@pytest.mark.parametrize(
    ("names", "present", "past", "participle"),
    [
        (("read", "lesen"), "lese liest lesen", "las las lasen", "gelesen"),
        (("work", "arbeiten"), "arbeite arbeitet arbeiten", "arbeitete arbeitete arbeiteten",
         "gearbeitet"),
        (("live", "wohnen"), "wohne wohnt wohnen", "wohnte wohnte wohnten", "gewohnt"),
        (("know", "wissen"), "weiß weiß wissen", "wusste wusste wussten", None),
        (("have", "haben"), "habe hat haben", "hatte hatte hatten", "gehabt"),
        (("bring", "bringen"), "bringe bringt bringen", "brachte brachte brachten", "gebracht"),
        (("feed", "füttern"), "füttere füttert füttern", "fütterte fütterte fütterten",
         "gefüttert"),
        (("repair", "reparieren"), "repariere repariert reparieren",
         "reparierte reparierte reparierten", "repariert"),
        (("sell", "verkaufen"), "verkaufe verkauft verkaufen", "verkaufte verkaufte verkauften",
         "verkauft"),
        (("be", "sein"), "bin ist sind", "war war waren", "gewesen"),
    ],
)  # fmt: skip
def test_german_verbs(
    names: tuple[str, str], present: str, past: str, participle: str | None
) -> None:
    found = verb(*names)
    paradigm = forms.german(found.german, found.german_forms)
    for tense, expected in (("present", present), ("past", past)):
        assert " ".join(forms.finite(paradigm, tense, np) for np in PERSONS) == expected
    assert participle is None or paradigm["participle"] == participle


def test_motion_verbs_take_sein() -> None:
    for names in (("go", "gehen"), ("fly", "fliegen"), ("stay", "bleiben")):
        assert "*" in verb(*names).tenses
    assert "*" not in verb("read", "lesen").tenses


@pytest.mark.parametrize(
    ("base", "present", "past", "participle", "ing"),
    [
        ("be", "am is are", "was was were", "been", "being"),
        ("have", "have has have", "had had had", "had", "having"),
        ("carry", "carry carries carry", "carried carried carried", "carried", "carrying"),
        ("watch", "watch watches watch", "watched watched watched", "watched", "watching"),
        ("swim", "swim swims swim", "swam swam swam", "swum", "swimming"),
        ("write", "write writes write", "wrote wrote wrote", "written", "writing"),
        ("plan", "plan plans plan", "planned planned planned", "planned", "planning"),
    ],
)
def test_english_verbs(base: str, present: str, past: str, participle: str, ing: str) -> None:
    paradigm = forms.english(base, next(v.english_forms for v in VERBS if v.english == base))
    for tense, expected in (("present", present), ("past", past)):
        assert " ".join(forms.finite(paradigm, tense, np) for np in PERSONS) == expected
    assert (paradigm["participle"], paradigm["ing"]) == (participle, ing)


def test_english_articles_and_plurals() -> None:
    words = ("apple", "university", "umbrella", "honest", "house")
    assert [forms.indefinite_article(w) for w in words] == ["an", "a", "an", "an", "a"]
    mouse = next(n for n in NOUNS if n.english == "mouse")
    assert [w.form for w in english.noun_phrase(NounPhrase(mouse, "pl"))] == ["mice"]
    assert [forms.with_s(w) for w in ("church", "boy", "city")] == ["churches", "boys", "cities"]
