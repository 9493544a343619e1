"""Restrictive relative clauses, on subjects and on objects."""

from __future__ import annotations

from dataclasses import replace

from data_prep.embedded.grammar import clauses as cl
from data_prep.embedded.grammar.clauses import simple_clause
from data_prep.embedded.grammar.copular import predicate_adjective
from data_prep.embedded.grammar.determiners import PERSONS, THE
from data_prep.embedded.grammar.plan import Plan
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.lexicon import FrameSlot, Noun, Verb
from data_prep.embedded.syntax.nodes import (
    Clause,
    NounPhrase,
    PrepPhrase,
)

Result = tuple[Clause, str, str]


def relative_clause(scene: Scene, antecedent: NounPhrase) -> Clause:
    """A restrictive relative clause: the pronoun as subject, object, or after a preposition."""
    noun = antecedent.noun
    assert noun is not None
    options = [(_subject_relative, 1.0), (_object_relative, 1.2), (_place_relative, 0.8)]
    build = scene.dice.weighted(options)
    return build(scene, noun, antecedent.number)


def _relative_pronoun(noun: Noun, number: str, english: str) -> NounPhrase:
    return NounPhrase(role=english, number=number, gender=noun.gender)


_RELATIVE_PLAN = Plan(
    tenses=("progressive", "past", "perfect", "present"),
    may_front=False,
    place=0.35,
    rich=False,
    time=False,
)


def _subject_relative(scene: Scene, noun: Noun, number: str) -> Clause:
    plan = replace(_RELATIVE_PLAN, adverbials=scene.dice.chance(0.5))
    verbs = [
        v
        for v, _ in cl.verbs_for(scene, plan)
        if v.subjects & noun.classes and v.english not in ("arrive", "disappear")
    ]
    if not verbs:
        raise NoFit
    english = "who" if noun.classes & (PERSONS | {"baby"}) else "that"
    return simple_clause(
        scene, plan, scene.dice.pick(verbs), _relative_pronoun(noun, number, english)
    )


_NO_RELATIVE = {"have", "drink", "eat", "break"}


def _object_relative(scene: Scene, noun: Noun, number: str) -> Clause:
    plan = replace(_RELATIVE_PLAN, adverbials=False)
    pairs = [
        (v, s)
        for v, _ in cl.verbs_for(scene, plan)
        for s in v.slots
        if s.role in "odp" and s.classes & noun.classes and v.english not in _NO_RELATIVE
    ]
    if not pairs:
        raise NoFit
    verb, slot = scene.dice.pick(pairs)
    if any(s.role == "i" for s in verb.slots):  # the deed is done before one speaks of it
        plan = replace(plan, tenses=("past", "perfect"))
    clause = simple_clause(scene, plan, replace(verb, slots=()), _relative_subject(scene, verb))
    if slot.own and clause.subject.agreement_number == "pl":
        raise NoFit  # not one coat for all
    clause.verb = verb
    cl.fill_slots(scene, clause, verb, skip=slot)
    person = bool(noun.classes & PERSONS)
    english = "that"
    if slot.role == "p" and not slot.german:
        raise NoFit
    if slot.role == "p" and slot.english:
        english = "whom" if person else "which"
    pronoun = _relative_pronoun(noun, number, english)
    pp = cl.place_argument(clause, slot, pronoun)
    clause.front = pp or pronoun
    return clause


def _relative_subject(scene: Scene, verb: Verb) -> NounPhrase:
    subject = scene.subject(verb.subjects, rich=False)
    if subject.conjuncts or (subject.is_pronoun and subject.person == 2):
        raise NoFit
    return subject


def _place_relative(scene: Scene, noun: Noun, number: str) -> Clause:
    """The house in which my aunt lives."""
    if noun.place is None:
        raise NoFit
    plan = replace(_RELATIVE_PLAN, adverbials=False)
    verbs = [
        v
        for v, _ in cl.verbs_for(scene, plan)
        if (v.places | _located(v)) & noun.classes and not any(s.role == "dir" for s in v.slots)
    ]
    if not verbs:
        raise NoFit
    verb = scene.dice.pick(verbs)
    kept = tuple(s for s in verb.slots if s.role != "loc")
    clause = simple_clause(scene, plan, replace(verb, slots=kept), _relative_subject(scene, verb))
    pronoun = _relative_pronoun(noun, number, "which")
    clause.front = PrepPhrase(noun.place.english_at, noun.place.german_at, "dat", pronoun, "place")
    clause.adjuncts.append(clause.front)
    return clause


def _located(verb: Verb) -> frozenset[str]:
    slots: list[FrameSlot] = [s for s in verb.slots if s.role == "loc"]
    return frozenset().union(*(s.classes for s in slots))


def relative_on_subject(scene: Scene) -> Result:
    """The woman who is singing is very friendly. The book that I am reading is exciting."""
    adjective = scene.dice.pick(
        [a for a in scene.lexicon.adjectives if a.classes | a.predicative_classes]
    )
    subject = scene.common(adjective.classes | adjective.predicative_classes, rich=False)
    noun = subject.noun
    if noun is None or noun.mass or "kin" in noun.classes:
        raise NoFit
    subject = NounPhrase(noun, subject.number, determiner=THE)
    predicate = predicate_adjective(scene, subject)
    subject.relative = relative_clause(scene, subject)
    tense = "past" if subject.relative.tense == "past" and scene.dice.chance(0.5) else "present"
    if predicate.adjective.gradable and scene.dice.chance(0.3):
        predicate.intensifier = "very"
    return Clause(subject, predicate=predicate, tense=tense), "main", "."


def relative_on_object(scene: Scene) -> Result:
    """I know the man who is waiting for the bus."""
    plan = Plan(
        tenses=("progressive", "present", "past", "perfect", "future"), adverbials=False, rich=False
    )
    verbs = [
        v
        for v, _ in cl.verbs_for(scene, plan)
        if len(v.slots) == 1 and v.slots[0].role in "od" and v.english not in ("have", "need")
    ]
    main = simple_clause(scene, plan, scene.dice.pick(verbs))
    target = main.direct
    if target is None or target.noun is None or not target.noun.countable:
        raise NoFit
    if "kin" in target.noun.classes or main.subject.agreement_person == 2:
        raise NoFit
    main.direct = NounPhrase(target.noun, target.number, determiner=THE)
    main.direct.relative = relative_clause(scene, main.direct)
    if main.direct.relative.verb is main.verb:
        raise NoFit
    return main, "main", "."
