"""Simple clauses: a verb frame with fitting arguments, tense, polarity and adverbials."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from data_prep.embedded.lexicon import (
    ADVERBIALS,
    TENSES,
    VERBS,
    Adverbial,
    Slot,
    Tense,
    Verb,
)
from data_prep.embedded.nodes import AdverbialUse, Argument, Clause, NounPhrase
from data_prep.embedded.scene import NoFit, Scene


@dataclass(frozen=True)
class Plan:
    """What a construction asks of a clause: its tense is one of ``tenses``.

    ``rich``: with all sorts of subjects; ``time``: with adverbials of time, one of which, if it
    ``may_front``, opens the clause.
    """

    tenses: tuple[str, ...]
    negated: bool = False
    rich: bool = False
    adverbials: bool = False
    time: bool = True
    may_front: bool = False


def verbs(plan: Plan, *groups: str) -> list[Verb]:
    """Those that take one of the tenses; if groups are named, of one of them."""
    letters = {TENSES[tense].letter for tense in plan.tenses}
    return [v for v in VERBS if v.aspect & letters and (not groups or v.in_group(*groups))]


def simple_clause(
    scene: Scene,
    plan: Plan,
    choice: Iterable[Verb] | None = None,
    subject: NounPhrase | None = None,
    skip: Slot | str | None = None,
) -> Clause:
    """A clause with one verb of ``choice``; ``skip``: the slot, or role of slots, left open."""
    fitting = list(verbs(plan) if choice is None else choice)
    if not fitting:
        raise NoFit
    verb = scene.dice.pick(fitting)
    if subject is None:
        subject = scene.subject(verb.subjects, plan.rich and not plan.negated)
    tense = _tense(scene, plan, verb, subject)
    clause = Clause(subject, tense, verb, negated=plan.negated)
    for slot in verb.slots:
        if skip not in (slot, slot.role) and not ("?" in slot.marks and scene.dice.chance(0.4)):
            clause.parts.append(_argument(scene, clause, slot))
    if plan.adverbials:
        _add_adverbials(scene, clause, plan)
    elif tense.name == "habitual":
        clause.parts.append(pick_adverbial(scene, "habit", {"hab"}))
    return clause


def _tense(scene: Scene, plan: Plan, verb: Verb, subject: NounPhrase) -> Tense:
    """No "du" in the preterite (bookish), no "they read", which could be either tense."""
    person, number = subject.person, subject.number
    ambiguous = verb.english_past == verb.english and (person, number) != (3, "sg")
    options = [
        (tense, tense.weight)
        for tense in map(TENSES.__getitem__, plan.tenses)
        if tense.letter in verb.aspect and (tense.name != "past" or not (person == 2 or ambiguous))
    ]
    if not options:
        raise NoFit
    return scene.dice.weighted(options)


# --- arguments -----------------------------------------------------------------------------------

_KINDS = {"o": "obj", "d": "obj", "i": "iobj", "p": "oblique"}


def _argument(scene: Scene, clause: Clause, slot: Slot) -> Argument:
    if slot.role == "dir":
        return scene.goal(slot.classes)
    if slot.role == "loc":
        return scene.place(slot.classes, clause.subject)
    return argument(slot, scene.object(slot, clause.subject, _indefinite(clause, slot)))


def argument(slot: Slot, phrase: NounPhrase) -> Argument:
    """A noun phrase in the place of a slot."""
    return Argument(phrase, _KINDS[slot.role], slot.case, slot.english, slot.german)


def _indefinite(clause: Clause, slot: Slot) -> float:
    """How natural an indefinite object is; under negation it would mean "not a single one"."""
    aspect = clause.verb.aspect if clause.verb else frozenset()
    if not aspect & {"a", "A"} or slot.role != "o":
        return 0.0
    if "A" in aspect:
        return 40.0
    if clause.tense.name == "habitual":
        return 6.0  # every day he reads a book
    if clause.negated:
        return 0.9 if "s" in aspect else 0.15
    return 1.0


# --- adverbials ----------------------------------------------------------------------------------


def pick_adverbial(scene: Scene, kinds: str, tags: Iterable[str]) -> AdverbialUse:
    """One of the kinds that has one of the tags."""
    fitting = [a for a in ADVERBIALS if a.kind in kinds.split() and a.tags & set(tags)]
    if not fitting:
        raise NoFit
    return AdverbialUse(scene.dice.pick(fitting))


def _add_adverbials(scene: Scene, clause: Clause, plan: Plan) -> None:
    """Time, then perhaps manner or a place; opening the clause, time inverts subject and verb."""
    verb, tense, dice = clause.verb, clause.tense, scene.dice
    assert verb is not None
    timed = plan.time and "s" not in verb.aspect and dice.chance(tense.time)
    if timed and (options := _times(clause, verb)):
        use = AdverbialUse(dice.pick(options))
        clause.parts.append(use)
        if plan.may_front and "f" in use.entry.flags and dice.chance(0.35):
            clause.front = use
    if clause.negated or (timed and (tense.name == "habitual" or dice.chance(0.5))):
        return
    if verb.manner and dice.chance(0.3):
        clause.parts.append(pick_adverbial(scene, "manner place", verb.manner))
    elif verb.places and not verb.has("dir", "loc") and dice.chance(0.3):
        clause.parts.append(scene.place(verb.places, clause.subject))


def _times(clause: Clause, verb: Verb) -> list[Adverbial]:
    """Adverbials of time, frequency and aspect that go with the tense and the verb."""
    tag = clause.tense.tag
    more = {f"{tag}_{season}" for season in ("dated", "seasonal") if verb.in_group(season)}
    kinds = {"time"} if clause.negated else {"time", "habit", "aspect"}
    return [a for a in ADVERBIALS if a.kind in kinds and a.tags & {tag, *more}]
