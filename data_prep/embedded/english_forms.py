"""English inflection: verb forms, the article."""

from __future__ import annotations

from data_prep.embedded.lexicon import IRREGULAR, doubles_consonant, with_s

_ING = {"lie": "lying", "travel": "travelling"}


def finite(verb: str, past: str, tense: str, person: int, number: str) -> str:
    """The finite form; ``past`` is the verb's preterite, unused for irregular auxiliaries."""
    irregular = IRREGULAR.get(("en", verb))
    if tense == "past":
        if verb == "be" and number == "sg" and person != 2:
            return "was"
        return irregular["past"] if irregular else past
    if irregular:
        return irregular["pl" if number == "pl" else f"{person}sg"]
    return with_s(verb) if (person, number) == (3, "sg") else verb


def present_participle(verb: str) -> str:
    if verb in _ING:
        return _ING[verb]
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return (verb + verb[-1] if doubles_consonant(verb) else verb) + "ing"


def indefinite_article(next_word: str) -> str:
    """ "a" or "an" by the sound of the word that follows."""
    if next_word.startswith(("univer", "useful", "one")):
        return "a"
    vowel = next_word.startswith(("a", "e", "i", "o", "u", "hon"))
    return "an" if vowel and next_word != "honey" else "a"
