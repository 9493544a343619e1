"""English inflection: verb forms, the forms of be/have/do, articles, pronouns."""

from __future__ import annotations

from data_prep.embedded.lexicon import Noun, doubles_consonant

PRONOUNS = {  # (person, number, gender): subject, object, possessive
    (1, "sg", ""): ("I", "me", "my"),
    (2, "sg", ""): ("you", "you", "your"),
    (3, "sg", "m"): ("he", "him", "his"),
    (3, "sg", "f"): ("she", "her", "her"),
    (3, "sg", "n"): ("it", "it", "its"),
    (1, "pl", ""): ("we", "us", "our"),
    (3, "pl", ""): ("they", "them", "their"),
}

_IRREGULAR_FINITE = {
    ("be", "present", 1, "sg"): "am",
    ("be", "present", 3, "sg"): "is",
    ("be", "past", 1, "sg"): "was",
    ("be", "past", 3, "sg"): "was",
    ("have", "present", 3, "sg"): "has",
    ("do", "present", 3, "sg"): "does",
    ("go", "present", 3, "sg"): "goes",
}
_PASTS = {"be": "were", "have": "had", "do": "did"}
_ING = {"lie": "lying", "travel": "travelling"}


def third_person(verb: str) -> str:
    if verb.endswith(("s", "x", "ch", "sh", "z")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def present_participle(verb: str) -> str:
    if verb in _ING:
        return _ING[verb]
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return (verb + verb[-1] if doubles_consonant(verb) else verb) + "ing"


def finite(verb: str, past: str, tense: str, person: int, number: str) -> str:
    """The finite form; ``past`` is the verb's preterite, unused for be, have and do."""
    irregular = _IRREGULAR_FINITE.get((verb, tense, person, number))
    if irregular:
        return irregular
    if tense == "past":
        return _PASTS.get(verb, past)
    if verb == "be":
        return "are"
    return third_person(verb) if (person, number) == (3, "sg") else verb


def noun_form(noun: Noun, number: str) -> str:
    return noun.english_plural if number == "pl" else noun.english


_VOWEL_LETTER_CONSONANT_SOUND = ("univer", "useful", "one")


def indefinite_article(next_word: str) -> str:
    """ "a" or "an" by the sound of the word that follows."""
    word = next_word.lower()
    if word.startswith(_VOWEL_LETTER_CONSONANT_SOUND):
        return "a"
    return "an" if word.startswith(("a", "e", "i", "o", "u", "hon")) and word != "honey" else "a"
