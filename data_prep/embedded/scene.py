"""Random choices, and the noun phrases of one sentence that fit their place."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeVar

from data_prep.embedded import lexicon
from data_prep.embedded.lexicon import DETERMINERS, POSSESSIVES, Classes, Determiner, Noun, Slot
from data_prep.embedded.tree import PERSON, Clause, NounPhrase, Part

T = TypeVar("T")

PEOPLE = PERSON | {"kid", "royal", "baby"}
THE = DETERMINERS["the"]


class NoFit(Exception):
    """The choices so far leave nothing that fits; the sampler starts the sentence again."""


class Dice:
    """Choices that are the same on every Python version.

    Only `random.Random.random` is promised to yield the same numbers for a seed for ever; choice,
    shuffle and the rest may change their algorithm, so they are not used.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """Raises NoFit if there are none."""
        if not items:
            raise NoFit
        return items[int(self._random.random() * len(items))]

    def weighted(self, items: Iterable[tuple[T, float]]) -> T:
        values, weights = zip(*items, strict=True)
        limits = list(accumulate(weights))
        return values[bisect(limits, self._random.random() * limits[-1])]


def pronoun_for(np: NounPhrase) -> NounPhrase:
    """German keeps grammatical gender (der Tisch: er), English says it; people are he or she.

    Persons of neuter gender are refused: grammar says es, usage wavers, English says she.
    """
    if np.noun is None:
        return NounPhrase(number=np.number, person=np.person, sex=np.sex)
    if np.number == "pl":
        return NounPhrase(number="pl", antecedent=np.noun)
    person = np.noun.classes & PEOPLE
    if person and np.noun.gender == "n":
        raise NoFit
    return NounPhrase(sex=np.noun.gender if person else "n", antecedent=np.noun)


class Scene:
    """Lives for one sentence, and remembers its nouns and adjectives, so that none comes twice."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.used: set[str] = set()

    def noun(self, wanted: Classes, needs: str = "") -> Noun:
        """One of the classes; ``needs`` as in `lexicon.nouns_of`."""
        fitting = lexicon.nouns_of(wanted, needs)
        noun = self.dice.pick([n for n in fitting if not {n.english, n.german} & self.used])
        self.used |= {noun.english, noun.german}
        return noun

    def adjective(self, classes: Classes) -> lexicon.Adjective:
        """One that suits nouns of these classes."""
        fitting = [a for a in lexicon.ADJECTIVES if a.modifies(classes)]
        adjective = self.dice.pick([a for a in fitting if a.english not in self.used])
        self.used.add(adjective.english)
        return adjective

    def pronoun(self, persons: Iterable[int] = (1, 3)) -> NounPhrase:
        """A personal pronoun of people."""
        fitting = [p for p in lexicon.PRONOUNS if p[0] in persons and p[2] in ("", "m", "f")]
        person, number, sex = self.dice.pick(fitting)
        return NounPhrase(number=number, person=person, sex=sex)

    def subject(self, wanted: Classes) -> NounPhrase:
        if "weather" in wanted:  # it is raining
            return NounPhrase(sex="n")
        if wanted & PERSON and self.dice.chance(0.22):
            return self.pronoun()
        return self.noun_phrase(self.noun(wanted), indefinite=0.1)

    def noun_phrase(
        self, noun: Noun, indefinite: float = 0, owner: NounPhrase | None = None
    ) -> NounPhrase:
        """A name, or a noun with determiner and perhaps an adjective.

        ``indefinite`` weighs indefinite determiners: high where a thing comes into being or into
        view (write a letter, buy a car), low where it is given (close the door).
        """
        several = "p" in noun.flags or (noun.german_plural and self.dice.chance(0.15))
        phrase = NounPhrase(noun, "pl" if several else "sg")
        if "b" not in noun.flags:
            if noun.classes & {"kin", "relational"}:
                phrase.determiner = self._possessive(owner)
            else:
                phrase.determiner = self._determiner(noun, phrase.number, indefinite)
            if self.dice.chance(0.2):
                phrase.adjective = self.adjective(noun.classes)
        return phrase

    def _possessive(self, owner: NounPhrase | None) -> Determiner:
        """Kin and neighbours are somebody's: the ``owner``'s, if a pronoun, or the speaker's."""
        key = self.dice.pick(((1, "sg", ""), (1, "pl", "")))
        if owner is not None and owner.noun is None:
            key = (owner.person, owner.number, owner.sex)
        return POSSESSIVES.get(key, POSSESSIVES[1, "sg", ""])

    def _determiner(self, noun: Noun, number: str, indefinite: float) -> Determiner | None:
        if "m" in noun.flags:
            return None if self.dice.chance(0.6 * indefinite) else THE
        if not noun.german_plural and number == "sg":
            return THE
        return self.dice.weighted(
            (d, (d.sg if number == "sg" else d.pl) * (1 if d.definite else indefinite))
            for d in DETERMINERS.values()
        )

    def argument(self, slot: Slot, node: Clause, indefinite: bool) -> Part:
        """What fills the slot of the verb: a place, a pronoun (not the subject's person, which
        would be reflexive; "picks him up" would split the verb), or a noun phrase."""
        if slot.kind in ("at", "to"):
            return self.place(slot.kind, slot.classes)
        if slot.classes & PERSON and not node.verb.particle and self.dice.chance(0.15):
            phrase = self.pronoun((4 - node.subject.person,))
        else:
            phrase = self.noun_phrase(self.noun(slot.classes), float(indefinite), node.subject)
        return Part(slot.kind, phrase, slot.preposition)

    def place(self, kind: str, wanted: Classes) -> Part:
        """In the city, to Berlin; ``kind``: at or to."""
        noun = self.noun(wanted, needs=kind)
        return Part(kind, self.noun_phrase(noun), noun.at if kind == "at" else noun.to)
