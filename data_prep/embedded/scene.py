"""Noun phrases that fit their place: who and what one sentence is about.

A `Scene` lives for one sentence. It remembers the nouns and adjectives used so far, so that none
turns up twice; possessives refer to the subject ("his sister" in the object of "he").
"""

from __future__ import annotations

from data_prep.embedded import lexicon
from data_prep.embedded.dice import Dice
from data_prep.embedded.lexicon import DETERMINERS, POSSESSIVES, Determiner, Noun, Slot
from data_prep.embedded.nodes import Argument, Modifier, NounPhrase

Person = tuple[int, str, str]

ICH: Person = (1, "sg", "")
DU: Person = (2, "sg", "")
WIR: Person = (1, "pl", "")
SPEAKERS: tuple[Person, ...] = tuple(person for person in POSSESSIVES if person[2] != "n")
PEOPLE = frozenset({"person", "adult", "kid", "royal"})
# What one says belongs to somebody, with a genitive.
_POSSESSED = lexicon.words(
    "ownable home garden ownthing pet image letter book question answer mistake coat instrument"
)
THE = DETERMINERS["the"]


class NoFit(Exception):
    """The choices so far leave nothing that fits; the sampler starts the sentence again."""


def pronoun(person: Person) -> NounPhrase:
    return NounPhrase(person=person[0], number=person[1], sex=person[2], gender=person[2])


def pronoun_for(np: NounPhrase) -> NounPhrase:
    """German keeps grammatical gender (der Tisch: er), English says it; people are he or she.

    Persons of neuter gender are refused: grammar says es, usage wavers, English says she.
    """
    if np.noun is None:
        return NounPhrase(number=np.number, person=np.person, sex=np.sex, gender=np.gender)
    if np.number == "pl":
        return NounPhrase(number="pl")
    gender = np.noun.gender
    if not np.noun.classes & (PEOPLE | {"baby"}):
        return NounPhrase(gender=gender, sex="n")
    if gender == "n":
        raise NoFit
    return NounPhrase(gender=gender, sex=gender)


def possessive_of(np: NounPhrase) -> Determiner | None:
    """my for I, his for the man; none for those of open sex ("the child")."""
    if np.role:
        return None
    if np.number == "pl" or np.noun is None:
        return POSSESSIVES.get((np.person, np.number, np.sex))
    named = np.noun.classes & PEOPLE and np.noun.gender in "mf"
    return POSSESSIVES[3, "sg", np.noun.gender] if named else None


class Scene:
    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.used: set[str] = set()

    def noun(self, wanted: frozenset[str], proper: bool = False, place: bool = False) -> Noun:
        fitting = [
            n
            for n in lexicon.nouns_of(wanted, proper)
            if not {n.english, n.german} & self.used and (n.place or not place)
        ]
        if not fitting:
            raise NoFit
        noun = self.dice.pick(fitting)
        self.used |= {noun.english, noun.german}
        return noun

    def name(self, wanted: str = "name") -> NounPhrase:
        return NounPhrase(self.noun(frozenset({wanted}), proper=True))

    def modifier(self, noun: Noun, predicative: bool = False) -> Modifier | None:
        """An adjective that suits the noun."""
        fitting = [
            a
            for a in lexicon.ADJECTIVES
            if a.modifies(noun, predicative) and a.english not in self.used
        ]
        if not fitting:
            return None
        adjective = self.dice.pick(fitting)
        self.used.add(adjective.english)
        return Modifier(adjective)

    # --- subjects -----------------------------------------------------------------------------

    def subject(self, wanted: frozenset[str], rich: bool = False) -> NounPhrase:
        """``rich``: with adjectives and indefinite determiners."""
        if wanted & {"person", "adult"}:
            kind = self.dice.weighted((("pronoun", 22), ("name", 12), ("noun", 66)))
            if kind == "pronoun":
                return pronoun(self.dice.pick(SPEAKERS))
            if kind == "name":
                return self.name()
        return self.common(wanted, 0.2 * rich, 0.15, 0.3 * rich)

    def full_subject(self, wanted: frozenset[str]) -> NounPhrase:
        """Not a pronoun of the third person: nothing before it says whom it means."""
        subject = self.subject(wanted)
        if subject.is_pronoun and subject.person != 1:
            raise NoFit
        return subject

    # --- nouns with determiner and adjective ------------------------------------------------------

    def common(
        self,
        wanted: frozenset[str],
        indefinite: float = 0,
        plural: float = 0,
        adjectives: float = 0,
        owner: NounPhrase | None = None,
    ) -> NounPhrase:
        """Kin and neighbours are somebody's: the ``owner``'s or a speaker's.

        ``indefinite`` weighs indefinite determiners: high where a thing comes into being or into
        view (write a letter, buy a car), low where it is given (close the door).
        """
        noun = self.noun(wanted)
        if "often_plural" in noun.classes and plural:
            plural = 0.85
        can_be_plural = noun.countable and "single" not in noun.classes
        kin = "kin" in noun.classes
        several = can_be_plural and self.dice.chance(0.05 if kin else plural)
        number = "pl" if several or "p" in noun.flags else "sg"
        phrase = NounPhrase(noun, number)
        if kin or "relational" in noun.classes:
            own = possessive_of(owner) if owner else POSSESSIVES[self.dice.pick(SPEAKERS)]
            phrase.determiner = own or POSSESSIVES[self.dice.pick((ICH, WIR))]
        elif "b" not in noun.flags:
            phrase.determiner = self._determiner(noun, number, indefinite)
        if not kin and "b" not in noun.flags and self.dice.chance(adjectives):
            phrase.modifier = self.modifier(noun)
        return phrase

    def _determiner(self, noun: Noun, number: str, indefinite: float) -> Determiner | None:
        if "m" in noun.flags:
            bare = "music" in noun.classes or self.dice.chance(0.6 * (indefinite > 0))
            return None if bare else THE
        if not noun.countable:
            return THE
        return self.dice.weighted(
            (d, (d.sg if number == "sg" else d.pl) * (1 if d.definite else indefinite))
            for d in DETERMINERS.values()
        )

    def object(self, slot: Slot, owner: NounPhrase, indefinite: float) -> NounPhrase:
        """A noun phrase in a complement: a pronoun, a name, kin, a thing."""
        wanted = slot.classes - {"name", "metropolis"}
        people = slot.classes & {"person", "adult", "name"}
        if slot.classes & PEOPLE and self.dice.chance(0.15):
            # Not the subject's own person, which would be reflexive; not "us" of "you", either.
            taken = owner.person
            others = [p for p in SPEAKERS if p[0] != taken and (taken, p) != (2, WIR)]
            return pronoun(self.dice.pick(others))
        if people and (not wanted or self.dice.chance(0.12)):
            return self.name()
        if "@" in slot.marks:  # a point of reference in space
            return self.common(wanted, adjectives=0.12)
        phrase = self.common(wanted, indefinite, 0 if "1" in slot.marks else 0.18, 0.25, owner)
        own = possessive_of(owner)
        assert phrase.noun is not None
        if "!" in slot.marks and own and phrase.determiner and self.dice.chance(0.7):
            phrase.determiner = own
            if phrase.noun.countable:
                phrase.number = owner.number  # they took off their coats
        if phrase.determiner is THE and not phrase.modifier:
            self.perhaps_owned(phrase)
            if "~" in slot.marks and not phrase.possessor:
                phrase.determiner = DETERMINERS["the_bare"]
        return phrase

    def perhaps_owned(self, phrase: NounPhrase) -> None:
        """The teacher's car: das Auto des Lehrers; Anna's car: Annas Auto."""
        if phrase.noun is None or not phrase.noun.classes & _POSSESSED or self.dice.chance(0.85):
            return
        if self.dice.chance(0.3):
            phrase.possessor = self.name()
        else:
            phrase.possessor = self.common(frozenset({"prof", "kin"}))
        phrase.determiner = None

    # --- places -------------------------------------------------------------------------------

    def place(self, wanted: frozenset[str], owner: NounPhrase) -> Argument:
        if "town" in wanted and self.dice.chance(0.4):
            return Argument(self.name("metropolis"), "place", "dat", "in", "in")
        phrase, use = self._place(wanted)
        own = possessive_of(owner)
        if own and phrase.noun and "private" in phrase.noun.classes and self.dice.chance(0.3):
            phrase.determiner = own
        return Argument(phrase, "place", "dat", use.english_at, use.german_at)

    def goal(self, wanted: frozenset[str]) -> Argument:
        """Where to: cities and countries take nach, other places their own preposition."""
        names = lexicon.nouns_of(wanted, proper=True)
        if names and self.dice.chance(0.4 if lexicon.nouns_of(wanted) else 1):
            return Argument(NounPhrase(self.noun(wanted, proper=True)), "dir", "acc", "to", "nach")
        phrase, use = self._place(wanted)
        if not use.english_to:
            raise NoFit
        return Argument(phrase, "dir", use.goal_case, use.english_to, use.german_to)

    def _place(self, wanted: frozenset[str]) -> tuple[NounPhrase, lexicon.Place]:
        noun = self.noun(wanted, place=True)
        assert noun.place is not None
        modifier = self.modifier(noun) if self.dice.chance(0.1) else None
        return NounPhrase(noun, determiner=THE, modifier=modifier), noun.place
