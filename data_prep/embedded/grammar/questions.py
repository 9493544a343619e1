"""Questions and requests."""

from __future__ import annotations

from dataclasses import replace

from data_prep.embedded.grammar import clauses as cl
from data_prep.embedded.grammar.clauses import simple_clause
from data_prep.embedded.grammar.determiners import PERSONS, WHICH
from data_prep.embedded.grammar.plan import CAN, HAVE_TO, WANT, Plan
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.grammar.verb_sets import ANIMATE
from data_prep.embedded.lexicon import FrameSlot, Verb
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    NounPhrase,
    WhAdverb,
)

Result = tuple[Clause, str, str]

ASKABLE = ("progressive", "past", "perfect", "future", "present")
DU = (2, "sg", "")


def polar_question(scene: Scene) -> Result:
    choice = scene.dice.weighted(((None, 6), (CAN, 1), (WANT, 1), (HAVE_TO, 0.7)))
    plan = Plan(tenses=ASKABLE, modal=choice, may_front=False, rich=False)
    verb = scene.dice.weighted(cl.verbs_for(scene, plan))
    return simple_clause(scene, plan, verb, _asked_subject(scene, verb, plan)), "question", "?"


def _asked_subject(scene: Scene, verb: Verb, plan: Plan) -> NounPhrase | None:
    """Questions often address the hearer."""
    if not verb.subjects & {"person", "adult"}:
        return None
    if scene.dice.chance(0.4):
        return scene.pronoun((DU,))
    subject = scene.subject(verb.subjects, rich=False)
    if subject.is_pronoun and subject.person == 1:
        raise NoFit  # one knows what one does oneself
    return subject


def who_question(scene: Scene) -> Result:
    """Who has bought the car?"""
    plan = Plan(tenses=("progressive", "past", "perfect", "present"), may_front=False)
    verbs = [(v, w) for v, w in cl.verbs_for(scene, plan) if v.subjects & {"person", "adult"}]
    subject = NounPhrase(role="who")
    clause = simple_clause(scene, plan, scene.dice.weighted(verbs), subject)
    clause.front = subject
    return clause, "question", "?"


def what_question(scene: Scene) -> Result:
    """What is she reading? Who did you meet? Which book have you bought?"""
    plan = Plan(tenses=("progressive", "past", "perfect", "future"), adverbials=False)
    verbs = [v for v, _ in cl.verbs_for(scene, plan) if any(s.role == "o" for s in v.slots)]
    verb = scene.dice.pick(verbs)
    if not verb.subjects & {"person", "adult"}:
        raise NoFit
    subject = _asked_subject(scene, verb, plan) or scene.subject(verb.subjects, rich=False)
    slot = next(s for s in verb.slots if s.role == "o")
    clause = simple_clause(scene, plan, replace(verb, slots=()), subject)
    clause.verb = verb
    cl.fill_slots(scene, clause, verb, skip=slot)
    clause.direct = asked_object(scene, slot)
    clause.front = clause.direct
    return clause, "question", "?"


def asked_object(scene: Scene, slot: FrameSlot) -> NounPhrase:
    if slot.classes & ANIMATE:
        if not slot.classes & PERSONS:
            raise NoFit
        return NounPhrase(role="who")
    noun = scene.noun(slot.classes)
    if noun.countable and scene.dice.chance(0.6):
        return NounPhrase(noun, determiner=WHICH)
    return NounPhrase(role="what")


def adverb_question(scene: Scene) -> Result:
    plan = Plan(tenses=ASKABLE, adverbials=False, rich=False)
    asked = scene.dice.weighted((("where", 3), ("whither", 2), ("when", 3), ("why", 3)))
    return circumstance(scene, plan, asked), "question", "?"


_GERMAN_WH = {"where": "wo", "whither": "wohin", "when": "wann", "why": "warum"}


def circumstance(scene: Scene, plan: Plan, asked: str) -> Clause:
    """A clause that asks for a circumstance, in the place of which it has none."""
    tenses = {
        "where": ("progressive", "past"),
        "whither": ("progressive", "past", "future"),
        "when": ("past", "future"),
        "why": ("progressive", "past", "perfect"),
    }[asked]
    plan = replace(plan, tenses=tenses)
    verbs = [v for v, _ in cl.verbs_for(scene, plan) if _can_be_asked(v, asked)]
    verb = scene.dice.pick(verbs)
    subject = _asked_subject(scene, verb, plan)
    drop = {"where": "loc", "whither": "dir"}.get(asked)
    kept = tuple(slot for slot in verb.slots if slot.role != drop)
    clause = simple_clause(scene, plan, replace(verb, slots=kept), subject)
    english = "where" if asked == "whither" else asked
    clause.front = WhAdverb(english, _GERMAN_WH[asked])
    return clause


def _can_be_asked(verb: Verb, asked: str) -> bool:
    roles = {slot.role for slot in verb.slots}
    if asked == "where":
        return "loc" in roles or (bool(verb.places) and "dir" not in roles)
    if asked == "whither":
        return "dir" in roles and len(verb.slots) == 1 and verb.english != "come"
    return "s" not in verb.aspect and not any(s.classes & {"lying", "seat"} for s in verb.slots)


def request(scene: Scene) -> Result:
    """Please open the window. Do not forget your key!"""
    verb = scene.dice.pick([v for v in scene.lexicon.verbs if "i" in v.aspect and not v.reflexive])
    negated = verb.english == "forget" or scene.dice.chance(0.12)
    plan = Plan(tenses=tuple(t for _, t, _ in cl._TENSES), adverbials=False, negated=negated)
    subject = scene.pronoun((DU,))
    clause = simple_clause(scene, replace(plan, tenses=("future",)), verb, subject)
    clause.tense = "present"
    if negated or scene.dice.chance(0.4):
        return clause, "imperative", "!"
    clause.adjuncts.append(AdverbialUse(scene.lexicon.adverbial("please")))
    return clause, "imperative", "."
