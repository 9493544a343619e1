"""Simple clauses: a verb frame with fitting arguments, tense, polarity and adjuncts."""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded.grammar.scene import EVERY, PERSONS, THE, NoFit, Scene
from data_prep.embedded.lexicon import Adverbial, FrameSlot, Verb
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Modal,
    NounPhrase,
    PrepPhrase,
)

CAN = Modal("can", "können", "aux", past="could")
MUST = Modal("must", "müssen", "aux", german_negated="dürfen")
SHOULD = Modal("should", "sollte", "aux")
WANT = Modal("want", "wollen", "semi", past="wanted")
HAVE_TO = Modal("have", "müssen", "semi", past="had")
WOULD_LIKE = Modal("like", "möchte", "polite")
ALLOWED = Modal("allowed", "dürfen", "passive", past="allowed")
LIKE_TO = Modal("like", "gern", "gern")
WANTED = Modal("want", "wollen", "semi", past="wanted", tense="past")
HAD_TO = Modal("have", "müssen", "semi", past="had", tense="past")
COULD = Modal("can", "können", "aux", past="could", tense="past")
MODALS = ((CAN, 4), (MUST, 4), (SHOULD, 2), (WANT, 4), (HAVE_TO, 2), (WOULD_LIKE, 3), (ALLOWED, 1))

# What an adverbial must agree with, by tense.
_TIME_TAG = {
    "progressive": "now",
    "habitual": "hab",
    "present": "state",
    "past": "past",
    "perfect": "perf",
    "future": "fut",
}
# Aspect letter of the verb table, tense of the tree, weight.
_TENSES = (
    ("g", "progressive", 5),
    ("h", "habitual", 4),
    ("s", "present", 6),
    ("p", "past", 6),
    ("t", "perfect", 4),
    ("f", "future", 4),
)


@dataclass(frozen=True)
class Plan:
    """What a construction asks of a clause; None leaves the choice open."""

    tenses: tuple[str, ...] = ("progressive", "habitual", "present", "past", "perfect", "future")
    negated: bool = False
    modal: Modal | None = None
    adverbials: bool = True
    place: float = 0.3
    may_front: bool = True
    agentive: bool = False
    rich: bool = True
    time: bool = True


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
    if person and subject.determiner is THE and subject.number == "sg" and scene.dice.chance(0.25):
        subject.determiner = EVERY


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
        if clause.modal is LIKE_TO and slot.role == "o" and phrase.noun and phrase.noun.countable:
            phrase = NounPhrase(phrase.noun, "pl")  # what one likes to read: books
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


# --- adverbials --------------------------------------------------------------------------------


_FROZEN_PLACES = {"home", "outside", "meal"}
# Events that people date by month or year.
DATED = {
    "travel",
    "build",
    "buy",
    "sell",
    "visit",
    "learn",
    "meet",
    "win",
    "steal",
    "fly",
    "plant",
    "photograph",
    "interview",
    "rescue",
}


SEASONAL = {"swim", "travel", "wear", "work", "rest", "drive", "play", "go"}
MISHAPS = {"verlieren", "vergessen", "zerbrechen", "verpassen", "verschwinden"}
LUCK = {"find", "win", "rescue", "come", "arrive", "solve"}


def frequency(scene: Scene) -> AdverbialUse:
    return AdverbialUse(scene.dice.pick(fixed(scene, {"freq", "habit"}, "hab")))


def fixed(scene: Scene, kinds: set[str], tag: str) -> list[Adverbial]:
    return [a for a in scene.lexicon.adverbials if a.kind in kinds and tag in a.tenses]


_TIME_CHANCE = {
    "progressive": 0.25,
    "habitual": 1.0,
    "present": 0.0,
    "past": 0.5,
    "perfect": 0.6,
    "future": 0.55,
}


def add_adverbials(scene: Scene, clause: Clause, tense: str, plan: Plan) -> None:
    tag = "modal" if clause.modal else _TIME_TAG[tense]
    chance = 0.2 if clause.modal else _TIME_CHANCE[tense]
    if clause.modal is LIKE_TO or (clause.modal and clause.modal.tense == "past"):
        chance = 0.0
    if "s" in clause.verb.aspect if clause.verb else False:
        chance = 0.0
    timed = plan.time and scene.dice.chance(chance)
    if timed:
        add_time(scene, clause, tag)
    if not timed or scene.dice.chance(0.2):
        _add_manner(scene, clause, tense)
    _add_place(scene, clause, plan)
    if plan.may_front:
        front_something(scene, clause, tense)


def add_time(scene: Scene, clause: Clause, tag: str) -> None:
    kinds = {"time", "freq", "habit", "aspect", "just", "prompt", "still"}
    if clause.negated:
        kinds = {"time", "yet"}
    tags = [tag]
    if clause.verb and clause.verb.english in DATED:
        tags.append(f"{tag}_long")
    if clause.verb and clause.verb.english in SEASONAL:
        tags.append(f"{tag}_season")
    options = [
        a
        for a in (a for t in tags for a in fixed(scene, kinds, t))
        if (a.kind != "prompt" or (clause.verb and "prompt" in clause.verb.manner))
        and (a.text not in ("right now", "soon") or not clause.negated)
    ]
    if tag == "past" and "never" in {a.text for a in options}:
        options = [a for a in options if a.text != "never" or scene.dice.chance(0.3)]
    if options:
        clause.adjuncts.append(AdverbialUse(scene.dice.pick(options)))


def _add_manner(scene: Scene, clause: Clause, tense: str) -> None:
    verb = clause.verb
    if verb is None or clause.negated or not scene.dice.chance(0.3) or clause.modal is LIKE_TO:
        return
    if any(isinstance(a, AdverbialUse) for a in clause.adjuncts) and tense == "habitual":
        return
    fitting = [a for a in scene.lexicon.adverbials if a.kind == "manner" and a.groups & verb.manner]
    if fitting:
        clause.adjuncts.append(AdverbialUse(scene.dice.pick(fitting)))


def _add_place(scene: Scene, clause: Clause, plan: Plan) -> None:
    verb = clause.verb
    taken = {"place", "dir", "manner"}
    crowded = len(clause.adjuncts) > 1 or any(a.kind in taken for a in clause.adjuncts)
    if verb is None or not verb.places or crowded or clause.negated:
        return
    if not scene.dice.chance(plan.place):
        return
    frozen = [a for a in scene.lexicon.adverbials if a.kind == "place" and a.groups & verb.places]
    if frozen and scene.dice.chance(0.2):
        clause.adjuncts.append(AdverbialUse(scene.dice.pick(frozen)))
    elif verb.places - _FROZEN_PLACES:
        clause.adjuncts.append(scene.place(verb.places - _FROZEN_PLACES, clause.subject))


def front_something(scene: Scene, clause: Clause, tense: str) -> None:
    """Perhaps open with an adverbial, which inverts subject and verb in German."""
    opening = [a for a in clause.adjuncts if isinstance(a, AdverbialUse) and a.entry.may_open]
    if opening and scene.dice.chance(0.35):
        clause.front = opening[0]
        return
    attitudes = fixed(scene, {"sentence"}, _attitude(clause, tense))
    if attitudes and clause.front is None and scene.dice.chance(0.15):
        use = AdverbialUse(scene.dice.pick(attitudes))
        clause.adjuncts.append(use)
        clause.front = use


def _attitude(clause: Clause, tense: str) -> str:
    """The tag of attitude adverbs that fit: regret for mishaps and for what does not happen."""
    name = clause.verb.english if clause.verb else ""
    if clause.negated:
        regretted = clause.modal is CAN or (name in LUCK and clause.modal is None)
        return "neg" if regretted else ""
    if clause.verb and clause.verb.german in MISHAPS:
        return "bad" if tense == "past" else ""
    if name in LUCK and tense == "past":
        return "lucky"
    return "fut" if tense == "future" else ""
