"""Coordination of verb phrases and of clauses."""

from __future__ import annotations

from data_prep.embedded.grammar.adverbials import fixed
from data_prep.embedded.grammar.clauses import simple_clause
from data_prep.embedded.grammar.plan import Plan
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.grammar.verb_sets import (
    FIRST_ACTS,
    LEISURE,
    PEOPLE,
    SECOND_ACTS,
    WORK,
    ongoing,
    verbs_named,
)
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Coordination,
)

Result = tuple[Clause, str, str]


def verb_phrase_coordination(scene: Scene) -> Result:
    """The man opened the door and went into the garden."""
    tense = scene.dice.pick(("past", "past", "future"))
    letter = "p" if tense == "past" else "f"
    first_verb = scene.dice.pick(
        [v for v in verbs_named(scene, FIRST_ACTS, letter) if v.german != "bekommen"]
    )
    second_verb = scene.dice.pick(verbs_named(scene, SECOND_ACTS, letter))
    classes = first_verb.subjects & second_verb.subjects & PEOPLE or frozenset({"adult"})
    subject = scene.subject(classes, rich=False)
    if (subject.agreement_person == 2 and tense == "past") or first_verb is second_verb:
        raise NoFit
    plan = Plan(tenses=(tense,), adverbials=False, rich=False)
    first = simple_clause(scene, plan, first_verb, subject)
    second = simple_clause(scene, plan, second_verb, subject)
    if scene.dice.chance(0.3):
        _date(scene, first, "past" if tense == "past" else "fut")
    if tense == "future":
        second.tense = "bare"
    first.coordinated = Coordination("and", "und", second, shared_subject=True)
    return first, "main", "."


def _date(scene: Scene, clause: Clause, tag: str) -> None:
    """Open with a time, which then holds for both conjuncts."""
    times = [a for a in fixed(scene, {"time"}, tag) if a.may_open and len(a.english) < 3]
    clause.front = AdverbialUse(scene.dice.pick(times))
    clause.adjuncts.append(clause.front)


def clause_coordination(scene: Scene) -> Result:
    """My brother is reading a book, but his sister is sleeping."""
    tense = scene.dice.pick(("progressive", "progressive", "past progressive"))
    but = scene.dice.chance(0.4)
    main = ongoing(scene, tense, WORK if but else WORK | LEISURE)
    other = ongoing(scene, tense, LEISURE if but else WORK | LEISURE)
    if main.verb is other.verb or (main.subject.is_pronoun and other.subject.is_pronoun):
        raise NoFit
    words = ("but", "aber") if but else ("and", "und")
    main.coordinated = Coordination(*words, other, comma=True, german_comma=but)
    return main, "main", "."
