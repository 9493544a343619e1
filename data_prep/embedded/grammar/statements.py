"""Statements with one full verb: plain, negated, modal, with a topicalised object."""

from __future__ import annotations

from data_prep.embedded.grammar.adverbials import fixed, front_something
from data_prep.embedded.grammar.clauses import simple_clause
from data_prep.embedded.grammar.determiners import THIS
from data_prep.embedded.grammar.plan import (
    CAN,
    HAD_TO,
    HAVE_TO,
    LIKE_TO,
    MODALS,
    MUST,
    SHOULD,
    WANT,
    WANTED,
    Plan,
)
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.grammar.verb_sets import ANIMATE
from data_prep.embedded.lexicon import Verb
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    NounPhrase,
)

Result = tuple[Clause, str, str]


def statement(scene: Scene) -> Result:
    return simple_clause(scene, Plan(place=0.4)), "main", "."


def negation(scene: Scene) -> Result:
    plan = Plan(negated=True, tenses=("progressive", "present", "past", "perfect", "future"))
    return simple_clause(scene, plan), "main", "."


def modal(scene: Scene) -> Result:
    choice = scene.dice.weighted((*MODALS, (WANTED, 1), (HAD_TO, 1.5), (LIKE_TO, 4)))
    clause = simple_clause(scene, Plan(modal=choice))
    if choice.tense == "past":
        options = fixed(scene, {"time"}, "past")
        if scene.dice.chance(0.6):
            clause.adjuncts.append(AdverbialUse(scene.dice.pick(options)))
            front_something(scene, clause, "past")
    return clause, "main", "."


def modal_negated(scene: Scene) -> Result:
    choice = scene.dice.weighted(((CAN, 4), (MUST, 2), (SHOULD, 2), (WANT, 3), (HAVE_TO, 2)))
    return simple_clause(scene, Plan(modal=choice, negated=True)), "main", "."


TOPICAL = {
    "read",
    "answer",
    "solve",
    "translate",
    "correct",
    "describe",
    "explain",
    "repair",
    "wash",
    "use",
    "discuss",
    "close",
}


def topic(scene: Scene) -> Result:
    """This film I have already seen: the object opens the sentence in both languages."""
    subject = scene.pronoun(((1, "sg", ""), (1, "pl", "")))
    verb = scene.dice.pick(
        [
            v
            for v in scene.lexicon.verbs
            if v.english in TOPICAL and _things(v) and len(v.slots) == 1
        ]
    )
    clause = simple_clause(
        scene, Plan(tenses=("perfect",), adverbials=False), verb=verb, subject=subject
    )
    if clause.direct is None or clause.direct.noun is None or not clause.direct.noun.countable:
        raise NoFit
    clause.direct = NounPhrase(clause.direct.noun, determiner=THIS)
    clause.front = clause.direct
    adverbs = [a for a in scene.lexicon.adverbials if a.kind == "aspect"]
    clause.adjuncts = [AdverbialUse(scene.dice.pick(adverbs))]
    return clause, "main", "."


def _things(verb: Verb) -> bool:
    return any(slot.role == "o" and not slot.classes & ANIMATE for slot in verb.slots)
