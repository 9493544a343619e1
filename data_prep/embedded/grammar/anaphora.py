"""Pronouns that refer back: to the subject or object of the clause before."""

from __future__ import annotations

from data_prep.embedded.grammar.determiners import PERSONS
from data_prep.embedded.grammar.scene import NoFit
from data_prep.embedded.syntax.nodes import NounPhrase


def pronoun_for(np: NounPhrase) -> NounPhrase:
    """German keeps grammatical gender (der Tisch: er), English says it; people are he or she.

    Persons of neuter gender are refused: grammar says es, usage wavers, English says she.
    """
    if np.is_pronoun:
        return NounPhrase(number=np.number, person=np.person, sex=np.sex, gender=np.gender)
    if np.agreement_number == "pl":
        return NounPhrase(number="pl")
    assert np.noun is not None
    gender = np.noun.gender
    if np.noun.classes & (PERSONS | {"baby"}):
        if gender == "n":
            raise NoFit
        return NounPhrase(gender=gender, sex=gender)
    return NounPhrase(gender=gender, sex="n")


def dummy() -> NounPhrase:
    """The subject of weather verbs: it, es."""
    return NounPhrase(gender="n", sex="n")
