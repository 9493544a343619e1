"""Inflection: from lexical entries and grammatical features to word forms, by the lexicon's tables."""

from __future__ import annotations

from data_prep.embedded.lexicon import DETERMINERS, ENDINGS, PRONOUNS, Determiner, Noun, Paradigm
from data_prep.embedded.tree import NounPhrase

KEIN = DETERMINERS["no"]
CONTRACTIONS = {
    ("in", "dem"): "im", ("an", "dem"): "am", ("zu", "dem"): "zum", ("zu", "der"): "zur",
    ("in", "das"): "ins", ("an", "das"): "ans", ("bei", "dem"): "beim", ("von", "dem"): "vom",
}  # fmt: skip
_QUESTIONED = {
    "who": {"nom": "wer", "acc": "wen", "dat": "wem"},
    "what": {"nom": "was", "acc": "was"},
}


def finite(paradigm: Paradigm, tense: str, subject: NounPhrase) -> str:
    """The form of either language that agrees with the subject; ``tense``: present or past."""
    if tense == "past":
        return paradigm["past_pl" if subject.number == "pl" else "past"]
    return paradigm["pl" if subject.number == "pl" else f"{subject.person}sg"]


def indefinite_article(next_word: str) -> str:
    """ "a" or "an" by the sound of the word that follows."""
    if next_word.startswith(("univer", "useful", "one")):
        return "a"
    return "an" if next_word.startswith(("a", "e", "i", "o", "u", "honest")) else "a"


def _ending(declension: str, gender: str, number: str, case: str) -> str:
    return ENDINGS[declension, "pl" if number == "pl" else gender][case]


def determiner(entry: Determiner, gender: str, number: str, case: str) -> str:
    """German; numerals have no ending."""
    if not entry.declension:
        return entry.german
    return entry.german + _ending(entry.declension, gender, number, case)


def adjective(stem: str, declension: str, gender: str, number: str, case: str) -> str:
    """The attributive form; ``declension``: weak, mixed or strong."""
    return stem + _ending(declension, gender, number, case)


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
        singular = (phrase.person, phrase.number) == (3, "sg")
        return PRONOUNS[phrase.person, phrase.number, gender if singular else ""][case]
    if not phrase.antecedent:
        return _QUESTIONED[phrase.role][case]
    if (phrase.number, case) == ("pl", "dat"):
        return "denen"
    return determiner(DETERMINERS["the"], gender, phrase.number, case)
