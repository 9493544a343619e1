"""Adjuncts of a clause: time, frequency, manner, place, attitude; and what opens it."""

from __future__ import annotations

from data_prep.embedded.grammar.plan import CAN, LIKE_TO, Plan
from data_prep.embedded.grammar.scene import Scene
from data_prep.embedded.lexicon import Adverbial
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
)

# What an adverbial must agree with, by tense.
_TIME_TAG = {
    "progressive": "now",
    "habitual": "hab",
    "present": "state",
    "past": "past",
    "perfect": "perf",
    "future": "fut",
}

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
