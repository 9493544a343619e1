"""Inflection: from lexical entries and grammatical features to word forms of both languages."""

from __future__ import annotations

import re
from functools import cache

from data_prep.embedded.lexicon import ENDINGS, IRREGULAR, PRONOUNS, Noun
from data_prep.embedded.tree import NounPhrase

CONTRACTIONS = {
    ("in", "dem"): "im", ("an", "dem"): "am", ("zu", "dem"): "zum", ("zu", "der"): "zur",
    ("in", "das"): "ins", ("an", "das"): "ans", ("bei", "dem"): "beim", ("von", "dem"): "vom",
}  # fmt: skip


# --- verbs ---------------------------------------------------------------------------------------

# Forms by name: 1sg, 3sg, pl, past, past_pl, participle, base, and English ing.
Paradigm = dict[str, str]


def with_s(word: str) -> str:
    """The regular plural of nouns, third person of verbs."""
    if word.endswith(("s", "x", "ch", "sh", "z")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


@cache
def english(base: str, listed: str = "") -> Paradigm:
    """``listed``: preterite, participle and -ing form; left out where they are regular."""
    stem = base.removesuffix("e")
    past = base[:-1] + "ied" if base.endswith("y") and base[-2] not in "aeiou" else stem + "ed"
    forms = listed.split(",") if listed else []
    past, participle, ing = [*forms, *[past, past, stem + "ing"][len(forms) :]]
    return {
        "base": base, "1sg": base, "3sg": with_s(base), "pl": base, "past": past, "past_pl": past,
        "participle": participle, "ing": ing, **IRREGULAR.get(("en", base), {}),
    }  # fmt: skip


@cache
def german(infinitive: str, listed: str = "") -> Paradigm:
    """``listed``: third person singular, preterite and participle; "" if they are regular."""
    stem = infinitive.removesuffix("n").removesuffix("e")
    third, past, participle = (listed or f"{stem}t,{stem}te,ge{stem}t").split(",")
    return {
        "base": infinitive, "1sg": stem + "e", "3sg": third, "pl": infinitive, "past": past,
        "past_pl": past + ("n" if past.endswith("e") else "en"), "participle": participle,
        **IRREGULAR.get(("de", infinitive), {}),
    }  # fmt: skip


def finite(paradigm: Paradigm, tense: str, subject: NounPhrase) -> str:
    """The form that agrees with the subject; ``tense``: present or past."""
    if tense == "past":
        return paradigm["past_pl" if subject.number == "pl" else "past"]
    return paradigm["pl" if subject.number == "pl" else f"{subject.person}sg"]


# --- articles, adjectives, nouns, pronouns -------------------------------------------------------


def indefinite_article(next_word: str) -> str:
    """ "a" or "an" by the sound of the word that follows."""
    return "an" if re.match("[aeio]|u(?!niv)|honest", next_word) else "a"


def ending(declension: str, gender: str, number: str, case: str) -> str:
    """Of German determiners and adjectives; numerals have none."""
    row = (declension, "pl" if number == "pl" else gender)
    return ENDINGS[row][case] if declension else ""


def noun(entry: Noun, number: str, case: str) -> str:
    if number == "pl":
        plural = entry.german_plural
        return plural + "n" if case == "dat" and not plural.endswith(("n", "s")) else plural
    weak = "n" in entry.flags and case != "nom"
    return entry.german_plural if weak else entry.german  # den Jungen, die Jungen


def pronoun(phrase: NounPhrase, case: str) -> str:
    """German personal, interrogative or relative pronoun."""
    gender = phrase.antecedent.gender if phrase.antecedent else phrase.sex
    if not phrase.role:
        key = (phrase.person, phrase.number, "" if phrase.number == "pl" else gender)
        return PRONOUNS[key][case]
    if (phrase.number, case) == ("pl", "dat"):
        return "denen"
    return "d" + ending("article", gender, phrase.number, case)
