"""Noun phrases that fit their place: who and what one sentence is about.

A `Scene` lives for one sentence. It remembers the words used so far, so that no noun turns up
twice, and the subject, to which possessives refer ("his sister" in the object of "he").
"""

from __future__ import annotations

from data_prep.embedded.grammar.determiners import (
    MANY,
    NUMERALS,
    PERSONS,
    POSSESSED,
    POSSESSIVES,
    SOME,
    SPEAKERS,
    THE,
    THE_BARE,
    THESE,
    THIS,
    A,
)
from data_prep.embedded.grammar.dice import Dice
from data_prep.embedded.lexicon import Adjective, FrameSlot, Lexicon, Noun, PlaceUse
from data_prep.embedded.syntax.nodes import Determiner, Modifier, NounPhrase, PrepPhrase


class NoFit(Exception):
    """The choices so far leave nothing that fits; the sampler starts the sentence again."""


class Scene:
    def __init__(self, dice: Dice, lexicon: Lexicon) -> None:
        self.dice = dice
        self.lexicon = lexicon
        self.used: set[str] = set()
        self.counting = True  # may say "two pizzas", "some letters"

    # --- words --------------------------------------------------------------------------------

    def noun(self, classes: frozenset[str]) -> Noun:
        fitting = [n for n in self.lexicon.nouns_of(classes) if self._fresh(n)]
        return self._take(fitting)

    def name(self, classes: frozenset[str]) -> Noun:
        return self._take([n for n in self.lexicon.names_of(classes) if self._fresh(n)])

    def _fresh(self, noun: Noun) -> bool:
        return noun.english not in self.used and noun.german not in self.used

    def _take(self, fitting: list[Noun]) -> Noun:
        if not fitting:
            raise NoFit
        noun = self.dice.pick(fitting)
        self.used |= {noun.english, noun.german}
        return noun

    def adjective(self, noun: Noun, predicative: bool = False) -> Adjective | None:
        fitting = [
            a
            for a in self.lexicon.adjectives
            if a.modifies(noun, predicative) and a.english not in self.used
        ]
        if not fitting:
            return None
        chosen = self.dice.pick(fitting)
        self.used.add(chosen.english)
        return chosen

    # --- subjects -----------------------------------------------------------------------------

    def subject(self, classes: frozenset[str], rich: bool = True) -> NounPhrase:
        """``rich``: with adjectives, possessors and conjuncts."""
        if classes & {"person", "adult"}:
            kind = self.dice.weighted(
                (("pronoun", 22), ("name", 12), ("kin", 16), ("noun", 46), ("pair", 4 * rich))
            )
            if kind == "pronoun":
                return self.pronoun()
            if kind == "name":
                return NounPhrase(self.name(frozenset({"person"})))
            if kind == "kin":
                return self.kin_phrase(None)
            if kind == "pair":
                return self.pair(classes)
        return self.common(classes, rich=rich)

    def pronoun(self, persons: tuple[tuple[int, str, str], ...] = SPEAKERS) -> NounPhrase:
        person, number, sex = self.dice.pick(persons)
        return NounPhrase(number=number, person=person, sex=sex, gender=sex)

    def pair(self, classes: frozenset[str]) -> NounPhrase:
        """Coordination of two noun phrases: "the doctor and his wife", "Anna and Paul"."""
        if self.dice.chance(0.5):
            first = NounPhrase(self.name(frozenset({"person"})))
            first.conjuncts = [NounPhrase(self.name(frozenset({"person"})))]
        elif self.dice.chance(0.5):
            first = self.kin_phrase(None)
            first.conjuncts = [self.kin_phrase(None, first.determiner)]
        else:
            first = self._plain(self.noun(frozenset({"prof"})), THE)
            first.conjuncts = [self._plain(self.noun(frozenset({"prof"})), THE)]
        return first

    def kin_phrase(
        self, owner: NounPhrase | None, determiner: Determiner | None = None
    ) -> NounPhrase:
        """Kin terms need a possessor; ``owner`` is who "his" would refer to."""
        noun = self.noun(frozenset({"kin"}))
        if determiner is None:
            determiner = self.possessive_of(owner) or self._foreign_possessive(owner)
        number = self._number(noun, 0.12 if "sibling" in noun.classes else 0)
        phrase = NounPhrase(noun, number, determiner=determiner)
        if noun.english in ("grandmother", "grandfather", "uncle", "aunt") and (
            self.dice.chance(0.12)
        ):
            phrase.modifiers = [Modifier(self.lexicon.adjective("old"))]
        return phrase

    def _foreign_possessive(self, owner: NounPhrase | None) -> Determiner:
        """Somebody else's; never one that could be misread as the owner's own."""
        if owner is not None and not owner.is_pronoun:
            return POSSESSIVES[self.dice.pick(((1, "sg", ""), (1, "pl", "")))]
        return POSSESSIVES[self.dice.pick(SPEAKERS)]

    def possessive_of(self, np: NounPhrase | None) -> Determiner | None:
        """my for I, his for the man; none for those of open sex ("the child")."""
        if np is None or np.role:
            return None
        if np.agreement_number == "pl":
            key = (np.person, "pl", "") if np.is_pronoun else (3, "pl", "")
            return POSSESSIVES.get(key)
        if np.noun is None:
            return POSSESSIVES.get((np.person, np.number, np.sex))
        if np.noun.classes & PERSONS and np.noun.gender in "mf":
            return POSSESSIVES[3, "sg", np.noun.gender]
        return None

    # --- noun phrases at large ------------------------------------------------------------------

    def common(
        self, classes: frozenset[str], rich: bool = True, plural: float = 0.15
    ) -> NounPhrase:
        """A definite or indefinite common noun, as subject or person object."""
        noun = self.noun(classes)
        if "kin" in noun.classes:
            self.used -= {noun.english, noun.german}
            return self.kin_phrase(None)
        number = self._number(noun, plural)
        phrase = self._plain(noun, self._subject_determiner(noun, number, rich), number)
        if rich:
            self.enrich(phrase, 0.3)
        return phrase

    def _number(self, noun: Noun, plural: float) -> str:
        if noun.plural_only:
            return "pl"
        can_be_plural = noun.countable and "single" not in noun.classes
        return "pl" if can_be_plural and self.dice.chance(plural) else "sg"

    def _plain(self, noun: Noun, determiner: Determiner | None, number: str = "sg") -> NounPhrase:
        return NounPhrase(noun, number, determiner=None if noun.bare else determiner)

    def _subject_determiner(self, noun: Noun, number: str, rich: bool) -> Determiner:
        related = "relational" in noun.classes
        if number == "pl":
            return self.dice.weighted(
                (
                    (THE, 50 * (not related)),
                    (THESE, 7 * (not related)),
                    (SOME, 6 * rich),
                    (MANY, 4 * rich),
                    (self.dice.pick(NUMERALS), 10 * rich),
                    (POSSESSIVES[self.dice.pick(SPEAKERS)], 60 * related),
                )
            )
        if noun.mass:
            return THE
        if related:
            return self.dice.weighted(((POSSESSIVES[self.dice.pick(SPEAKERS)], 90), (A, 10 * rich)))
        return self.dice.weighted(((THE, 80), (A, 8 * rich), (THIS, 9)))

    def enrich(self, phrase: NounPhrase, adjectives: float) -> None:
        """Perhaps an adjective, rarely with an intensifier or a second adjective."""
        noun = phrase.noun
        plain = noun is None or noun.bare or "kin" in noun.classes
        if noun is None or plain or not self.dice.chance(adjectives):
            return
        adjective = self.adjective(noun)
        if adjective is None:
            return
        graded = adjective.gradable and phrase.determiner in (A, THE, None)
        intensifier = "very" if graded and phrase.determiner is A and self.dice.chance(0.08) else ""
        phrase.modifiers = [Modifier(adjective, intensifier)]

    def object(self, slot: FrameSlot, owner: NounPhrase, indefinite: float) -> NounPhrase:
        """A noun phrase in a complement: person pronouns, kin, things with varied determiners.

        ``indefinite`` weighs the indefinite article: high where the object comes into being or
        into view (write a letter, buy a car), low where it is given (close the door).
        """
        classes = slot.classes
        if slot.ground:
            noun = self.noun(classes)
            ground = self._plain(noun, THE, self._number(noun, 0))
            self.enrich(ground, 0.12)
            return ground
        if classes & PERSONS and self.dice.chance(0.15):
            return self._object_pronoun(owner)
        if classes & {"person", "adult", "name"} and self.dice.chance(0.12):
            return NounPhrase(self.name(frozenset({"person"})))
        noun = self.noun(classes - {"name"}) if classes - {"name"} else self.name(classes)
        if "kin" in noun.classes:
            self.used -= {noun.english, noun.german}
            return self._kin_object(classes, owner)
        if noun.proper:
            return NounPhrase(noun)
        return self._thing(noun, slot, owner, indefinite)

    def _thing(
        self, noun: Noun, slot: FrameSlot, owner: NounPhrase, indefinite: float
    ) -> NounPhrase:
        own = self.possessive_of(owner)
        number = self._number(noun, 0 if slot.singular else self._plural_chance(noun))
        if "relational" in noun.classes or (slot.own and own and self.dice.chance(0.7)):
            if slot.own and noun.countable:
                number = owner.agreement_number  # they took off their coats
            determiner: Determiner | None = own or POSSESSIVES[1, "sg", ""]
        else:
            determiner = self._object_determiner(noun, number, indefinite)
        phrase = self._plain(noun, determiner, number)
        self.enrich(phrase, 0.25 if phrase.determiner not in NUMERALS else 0.1)
        if phrase.determiner is THE and not phrase.modifiers:
            self.perhaps_owned(phrase)
        if slot.bare and phrase.determiner is THE and not phrase.modifiers:
            phrase.determiner = THE_BARE
        return phrase

    @staticmethod
    def _plural_chance(noun: Noun) -> float:
        return 0.85 if "often_plural" in noun.classes else 0.18

    def perhaps_owned(self, phrase: NounPhrase) -> None:
        """The teacher's car: das Auto des Lehrers; Anna's car: Annas Auto."""
        assert phrase.noun is not None
        if not phrase.noun.classes & POSSESSED or not self.dice.chance(0.15):
            return
        kind = self.dice.weighted((("name", 3), ("kin", 4), ("noun", 4)))
        if kind == "name":
            phrase.possessor = NounPhrase(self.name(frozenset({"person"})))
        elif kind == "noun":
            phrase.possessor = self._plain(self.noun(frozenset({"prof"})), THE)
        else:
            noun = self.noun(frozenset({"kin"}))
            if noun.plural_only:
                return
            speaker = self.dice.pick(((1, "sg", ""), (1, "pl", "")))
            phrase.possessor = self._plain(noun, POSSESSIVES[speaker])
        phrase.determiner = None

    def _kin_object(self, classes: frozenset[str], owner: NounPhrase) -> NounPhrase:
        if "kin" in classes or classes & PERSONS:
            return self.kin_phrase(owner)
        noun = self.noun(classes)
        return NounPhrase(noun, determiner=self.possessive_of(owner) or POSSESSIVES[1, "sg", ""])

    def _object_pronoun(self, owner: NounPhrase) -> NounPhrase:
        """Not the subject's own person: that would be reflexive."""
        taken = owner.agreement_person
        persons = tuple(p for p in SPEAKERS if p[0] != taken and (p[0] == 3 or taken == 3))
        if taken == 1:
            persons = tuple(p for p in SPEAKERS if p[0] != 1)
        if taken == 2:
            persons = tuple(p for p in SPEAKERS if p[0] != 2 and p != (1, "pl", ""))
        return self.pronoun(persons)

    def _object_determiner(self, noun: Noun, number: str, indefinite: float) -> Determiner | None:
        if noun.english == "music":
            return None
        if noun.english in ("weather", "truth", "sun", "sea"):
            return THE
        if noun.mass:
            return None if indefinite > 1 or self.dice.chance(0.6) else THE
        if number == "pl":
            bare = 3.0 * (indefinite > 0) if "often_plural" in noun.classes else 0.4 * indefinite
            counted = 1.0 if indefinite >= 1 and self.counting else 0.0
            return self.dice.weighted(
                (
                    (THE, 3),
                    (THESE, 0.7),
                    (None, bare),
                    (SOME, 0.4 * counted),
                    (MANY, 0.4 * counted),
                    (self.dice.pick(NUMERALS), 0.9 * counted),
                )
            )
        return self.dice.weighted(((THE, 5), (A, 4 * indefinite), (THIS, 0.8)))

    # --- places ---------------------------------------------------------------------------------

    def place(self, classes: frozenset[str], owner: NounPhrase | None = None) -> PrepPhrase:
        phrase = self._place_noun(frozenset(classes), owner)
        use = place_use(phrase)
        return PrepPhrase(use.english_at, use.german_at, "dat", phrase, "place")

    def goal(self, classes: frozenset[str]) -> PrepPhrase:
        """Where to: cities and countries take nach, other places their own preposition."""
        names = self.lexicon.names_of(classes)
        if names and self.dice.chance(0.4 if self.lexicon.nouns_of(classes) else 1):
            return PrepPhrase("to", "nach", "acc", NounPhrase(self.name(classes)), "dir")
        phrase = self._place_noun(classes, None, adjectives=0.04)
        use = place_use(phrase)
        if not use.english_to:
            raise NoFit
        return PrepPhrase(use.english_to, use.german_to, use.goal_case, phrase, "dir")

    def city(self) -> PrepPhrase:
        name = self.name(frozenset({"metropolis"}))
        return PrepPhrase("in", "in", "dat", NounPhrase(name), "place")

    def _place_noun(
        self, classes: frozenset[str], owner: NounPhrase | None, adjectives: float = 0.12
    ) -> NounPhrase:
        places = [n for n in self.lexicon.nouns_of(classes) if n.place and self._fresh(n)]
        noun = self._take(places)
        own = self.possessive_of(owner)
        private = noun.english in ("house", "garden", "bedroom", "office")
        if private and own and self.dice.chance(0.3):
            return NounPhrase(noun, determiner=own)
        phrase = NounPhrase(noun, determiner=THE)
        self.enrich(phrase, adjectives)
        return phrase


def place_use(phrase: NounPhrase) -> PlaceUse:
    """The prepositions of a noun that names a place."""
    if phrase.noun is None or phrase.noun.place is None:
        raise NoFit
    return phrase.noun.place
