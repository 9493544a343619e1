"""Clauses of cause, concession and condition, matched to what they explain."""

from __future__ import annotations

from data_prep.embedded.grammar.anaphora import dummy, pronoun_for
from data_prep.embedded.grammar.determiners import NO
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.lexicon import Cause
from data_prep.embedded.syntax.nodes import Clause, Modifier, NounPhrase

# The tense of the reason beside that of its event; a result has a reason that lies before it.
_REASON_TENSE = {
    "progressive": "present",
    "present": "present",
    "future": "present",
    "past": "past",
    "perfect": "past",
}


def object_of(clause: Clause) -> NounPhrase:
    """The object proper, else that of a preposition."""
    if clause.direct is not None:
        return clause.direct
    if clause.prepositional:
        return clause.prepositional[0].noun_phrase
    raise NoFit


def reason(scene: Scene, cause: Cause, event: Clause) -> Clause:
    """The clause that explains ``event``, in a tense that fits."""
    tense = _REASON_TENSE[event.tense]
    if cause.of == "w":
        return weather(scene, cause, tense)
    who = event.subject if cause.of == "s" else object_of(event)
    if cause.of == "o":
        who.modifiers = []  # no "new car because it is old"
    return state(scene, cause, pronoun_for(who), tense)


def state(scene: Scene, cause: Cause, subject: NounPhrase, tense: str) -> Clause:
    if cause.kind == "adj":
        adjective = scene.lexicon.adjective(cause.word)
        intensifier = ""
        if adjective.gradable and scene.dice.chance(0.25):
            intensifier = scene.dice.pick(("very", "too") if cause.key == "big_o" else ("very",))
        return Clause(subject, predicate=Modifier(adjective, intensifier), tense=tense)
    possession = NounPhrase(scene.lexicon.noun(cause.word))
    if cause.kind == "need":
        return Clause(
            subject, scene.lexicon.verb("need", "brauchen"), direct=possession, tense=tense
        )
    if cause.kind == "no":
        possession.determiner = NO
    return Clause(subject, scene.lexicon.verb("have", "haben"), direct=possession, tense=tense)


def weather(scene: Scene, cause: Cause, tense: str) -> Clause:
    if cause.kind == "adj":
        return Clause(dummy(), predicate=Modifier(scene.lexicon.adjective(cause.word)), tense=tense)
    progressive = "progressive" if tense == "present" else "past progressive"
    german = {"rain": "regnen", "snow": "schneien"}[cause.word]
    return Clause(dummy(), scene.lexicon.verb(cause.word, german), tense=progressive)
