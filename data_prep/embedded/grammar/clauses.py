"""Simple clauses: a verb frame with fitting arguments, tense, polarity and adjuncts."""

from __future__ import annotations

from data_prep.embedded.grammar.adverbials import add_adverbials, frequency
from data_prep.embedded.grammar.determiners import ALL, EVERY, PERSONS, THE
from data_prep.embedded.grammar.plan import LIKE_TO, Plan
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.lexicon import FrameSlot, Verb
from data_prep.embedded.syntax.nodes import (
    Clause,
    NounPhrase,
    PrepPhrase,
)

# Aspect letter of the verb table, tense of the tree, weight.
_TENSES = (
    ("g", "progressive", 5),
    ("h", "habitual", 4),
    ("s", "present", 6),
    ("p", "past", 6),
    ("t", "perfect", 4),
    ("f", "future", 4),
)


def verbs_for(scene: Scene, plan: Plan) -> list[tuple[Verb, float]]:
    """Verbs that allow one of the tenses (and an agent), with weights."""
    letters = {letter for letter, tense, _ in _TENSES if tense in plan.tenses}
    if plan.modal is not None:
        letters = {"m"}
    chosen = []
    for verb in scene.lexicon.verbs:
        fits = bool(verb.aspect & letters) and (not plan.agentive or is_agentive(verb))
        if fits and (plan.modal is not LIKE_TO or _is_pastime(verb)):
            chosen.append((verb, 1.0))
    return chosen


def _is_pastime(verb: Verb) -> bool:
    """What one may like to do as such: read books, dance."""
    concrete = any(slot.role == "o" or slot.english in ("for", "at") for slot in verb.slots)
    return (
        "h" in verb.aspect
        and ("a" in verb.aspect or not concrete)
        and (verb.english not in ("sell", "hurry"))
    )


def is_agentive(verb: Verb) -> bool:
    """Deliberate acts of people: what one may be too tired for, or do in spite of the rain."""
    return (
        bool(verb.subjects & {"person", "adult"})
        and "m" in verb.aspect
        and ("s" not in verb.aspect)
    )


def simple_clause(
    scene: Scene,
    plan: Plan,
    verb: Verb | None = None,
    subject: NounPhrase | None = None,
) -> Clause:
    if verb is None:
        verb = scene.dice.weighted(verbs_for(scene, plan))
    if subject is None:
        subject = scene.subject(verb.subjects, plan.rich and not plan.negated)
    scene.counting = plan.rich and not plan.negated
    tense = _tense(scene, plan, verb, subject)
    clause = Clause(subject, verb, tense="present" if tense == "habitual" else tense)
    clause.modal, clause.negated = plan.modal, plan.negated
    if tense == "present" and plan.rich and not plan.negated and not plan.modal:
        _generalise(scene, subject)
    fill_slots(scene, clause, verb)
    if plan.adverbials:
        add_adverbials(scene, clause, tense, plan)
    elif tense == "habitual":
        clause.adjuncts.append(frequency(scene))
    return clause


def _generalise(scene: Scene, subject: NounPhrase) -> None:
    """Every child likes music: sometimes, of lasting states."""
    person = subject.noun is not None and bool(subject.noun.classes & PERSONS)
    if person and subject.determiner is THE and scene.dice.chance(0.3):
        subject.determiner = EVERY if subject.number == "sg" else ALL


def _tense(scene: Scene, plan: Plan, verb: Verb, subject: NounPhrase) -> str:
    if plan.modal is not None:
        return "present"
    options = [
        (tense, weight)
        for letter, tense, weight in _TENSES
        if letter in verb.aspect and tense in plan.tenses and _tense_fits(tense, verb, subject)
    ]
    if not options:
        raise NoFit
    return scene.dice.weighted(options)


def _tense_fits(tense: str, verb: Verb, subject: NounPhrase) -> bool:
    """No "du" in the preterite (bookish), no "they read", which could be either tense."""
    if tense != "past":
        return True
    if subject.agreement_person == 2:
        return False
    third_singular = (subject.agreement_person, subject.agreement_number) == (3, "sg")
    return third_singular or not verb.past_is_base


def fill_slots(scene: Scene, clause: Clause, verb: Verb, skip: FrameSlot | None = None) -> None:
    for slot in verb.slots:
        if slot is skip or (slot.optional and scene.dice.chance(0.4)):
            continue
        fill_slot(scene, clause, slot)


def fill_slot(scene: Scene, clause: Clause, slot: FrameSlot) -> None:
    if slot.role == "dir":
        clause.adjuncts.append(scene.goal(slot.classes))
    elif slot.role == "loc":
        in_city = slot.classes & {"town"} and scene.dice.chance(0.4)
        place = scene.city() if in_city else scene.place(slot.classes, clause.subject)
        clause.adjuncts.append(place)
    else:
        phrase = scene.object(slot, clause.subject, _indefinite(clause, slot))
        if clause.modal is LIKE_TO and slot.role == "o" and phrase.noun:
            # What one likes to read or drink: books, tea.
            phrase = NounPhrase(phrase.noun, "pl" if phrase.noun.countable else "sg")
        place_argument(clause, slot, phrase)


def _indefinite(clause: Clause, slot: FrameSlot) -> float:
    """How natural an indefinite object is; under negation it would mean "not a single one"."""
    if clause.verb is None or "a" not in clause.verb.aspect or slot.role != "o":
        return 0.0
    if "A" in clause.verb.aspect:
        return 40.0
    if clause.tense == "present" and "g" in clause.verb.aspect and not clause.modal:
        return 6.0  # a habit: every day he reads a book
    if clause.negated:
        return 0.9 if "s" in clause.verb.aspect else 0.15
    return 1.0


def place_argument(clause: Clause, slot: FrameSlot, phrase: NounPhrase) -> PrepPhrase | None:
    """Put a noun phrase where the slot says; returns the prepositional phrase if one is built."""
    if slot.role == "i":
        clause.indirect = phrase
        return None
    if slot.role in "od":
        clause.direct = phrase
        clause.dative_direct = slot.role == "d"
        return None
    pp = PrepPhrase(slot.english, slot.german, slot.case, phrase, "object")
    clause.prepositional.append(pp)
    return pp
