"""The constructions of the grammar, as the table constructions.txt sets them up.

A builder makes a tree of a `Scene` and the parameters of its row; it raises `NoFit` when its random
choices have led nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from data_prep.embedded import lexicon
from data_prep.embedded.clauses import Plan, argument, pick_adverbial, simple_clause, verbs
from data_prep.embedded.nodes import Argument, Clause, Linked, Modifier, NounPhrase
from data_prep.embedded.scene import DU, PEOPLE, THE, NoFit, Scene, pronoun, pronoun_for

PERSON = frozenset({"person", "adult"})
ADULT = frozenset({"adult"})


class Sentence(NamedTuple):
    tree: Clause
    form: str = "main"
    stop: str = "."


@dataclass(frozen=True)
class Parameters:
    """KEY=VALUE,VALUE of a row."""

    values: dict[str, tuple[str, ...]]

    def __call__(self, key: str) -> tuple[str, ...]:
        return self.values.get(key, ())

    def first(self, key: str, default: str = "") -> str:
        return next(iter(self(key)), default)

    def link(self) -> tuple[str, str, str]:
        """English and German conjunction ("" for none) and relation of the linked clause."""
        english, _, german = self.first("link").partition("/")
        return english, german, self.first("relation", "advcl")

    def plan(self, **more: bool) -> Plan:
        return Plan(self("tense"), bool(self("negated")), **more)

    def sub_plan(self, **more: bool) -> Plan:
        return Plan(self("sub_tense") or self("tense"), **more)


# --- one clause ----------------------------------------------------------------------------------


def simple(scene: Scene, want: Parameters) -> Sentence:
    """The doctor is reading a book. Did you buy the bread? Please open the window."""
    form = want.first("form", "main")
    statement = form == "main"
    plan = want.plan(rich=statement, adverbials=form != "imperative", may_front=statement)
    if form == "imperative":
        plan = replace(plan, negated=scene.dice.chance(0.15))
        acts = [v for v in verbs(plan) if not v.reflexive and v.english != "forget"]
        clause = simple_clause(scene, plan, acts, pronoun(DU))
        if plan.negated or scene.dice.chance(0.4):
            return Sentence(clause, form, "!")
        clause.parts.append(pick_adverbial(scene, "please", {"please"}))
        return Sentence(clause, form)
    if statement:
        return Sentence(simple_clause(scene, plan))
    act = scene.dice.pick(verbs(plan))
    return Sentence(simple_clause(scene, plan, (act,), _asked(scene, act)), form, "?")


def _asked(scene: Scene, act: lexicon.Verb) -> NounPhrase | None:
    """Questions often address the hearer, and never what one does oneself."""
    if not act.subjects & PERSON:
        return None
    subject = pronoun(DU) if scene.dice.chance(0.4) else scene.subject(act.subjects)
    if subject.is_pronoun and subject.person == 1:
        raise NoFit
    return subject


def question(scene: Scene, want: Parameters) -> Sentence:
    """Who has bought the car? Which book are you reading? Why is the child crying?"""
    asked = scene.dice.pick(want("ask"))
    if asked not in ("subject", "object"):
        return Sentence(_circumstance(scene, want.plan(), asked), "question", "?")
    people = [v for v in verbs(want.plan()) if v.subjects & PERSON]
    if asked == "subject":
        subject = NounPhrase(role="who")
        clause = simple_clause(scene, want.plan(adverbials=True), people, subject)
        clause.front = subject
        return Sentence(clause, "question", "?")
    act = scene.dice.pick([v for v in people if v.has("o")])
    slot = next(s for s in act.slots if s.role == "o")
    clause = simple_clause(scene, want.plan(), (act,), _asked(scene, act), skip=slot)
    clause.front = argument(slot, _asked_object(scene, slot))
    clause.parts.append(clause.front)
    return Sentence(clause, "question", "?")


def _asked_object(scene: Scene, slot: lexicon.Slot) -> NounPhrase:
    thing = scene.noun(slot.classes)
    if thing.classes & PEOPLE:
        return NounPhrase(role="who")
    if "animal" in thing.classes:
        raise NoFit
    if thing.countable and scene.dice.chance(0.6):
        return NounPhrase(thing, determiner=lexicon.DETERMINERS["which"])
    return NounPhrase(role="what")


def _circumstance(scene: Scene, plan: Plan, asked: str, named: bool = False) -> Clause:
    """A clause that asks for a circumstance, in the place of which it has none."""

    def fits(v: lexicon.Verb) -> bool:
        if asked == "where":
            return v.has("loc") or (bool(v.places) and not v.has("dir"))
        if asked == "whither":
            return v.has("dir") and len(v.slots) == 1 and v.english != "come"
        return "s" not in v.aspect and not any("@" in s.marks for s in v.slots)

    act = scene.dice.pick([v for v in verbs(plan) if fits(v)])
    subject = scene.full_subject(act.subjects) if named else _asked(scene, act)
    skip = {"where": "loc", "whither": "dir"}.get(asked)
    clause = simple_clause(scene, plan, (act,), subject, skip)
    clause.front = pick_adverbial(scene, "wh", {asked})
    clause.parts.append(clause.front)
    return clause


# --- qualities -----------------------------------------------------------------------------------


def _quality(scene: Scene, subject: NounPhrase, tense: str, said: str = "") -> Clause:
    """A copular clause, with any adjective that fits if none is ``said``."""
    about = subject.noun or lexicon.noun("man")
    chosen = Modifier(lexicon.adjective(said)) if said else None
    predicate = chosen or scene.modifier(about, predicative=True)
    if predicate is None:
        raise NoFit
    known = subject.sex == "n" or about.proper  # it is warm
    if not (known or predicate.adjective.modifies(about, predicative=True)):
        raise NoFit  # children are not busy
    predicate.very = "!very" not in predicate.adjective.classes and scene.dice.chance(0.2)
    return Clause(subject, _tense_of(subject, tense), predicate=predicate)


def _tense_of(subject: NounPhrase, tense: str) -> lexicon.Tense:
    """ "du" takes no preterite (bookish)."""
    if subject.person == 2 and tense == "past":
        raise NoFit
    return lexicon.TENSES[tense]


def _qualified(scene: Scene) -> NounPhrase:
    """Anything that an adjective can be said of."""
    said = scene.dice.pick(lexicon.ADJECTIVES)
    return scene.common(said.modified, plural=0.15)


def quality(scene: Scene, want: Parameters) -> Sentence:
    """The soup is very hot. My brother was not tired."""
    subject = scene.subject(PERSON) if scene.dice.chance(0.4) else _qualified(scene)
    clause = _quality(scene, subject, scene.dice.pick(want("tense")))
    clause.negated = scene.dice.chance(0.15)
    if subject.determiner is THE:
        scene.perhaps_owned(subject)
    return Sentence(clause)


# --- two clauses ---------------------------------------------------------------------------------


def explained(scene: Scene, want: Parameters) -> Sentence:
    """The man sold his car because it was old. Although it was raining, we went for a swim."""
    acts = verbs(want.plan(), *want("verbs"))
    of_verb = want("causes") == ("verb",)
    acts = [v for v in acts if (v.causes if of_verb else v.subjects & PERSON)]
    act = scene.dice.pick(acts)
    of, said = scene.dice.pick(act.causes if of_verb else want("causes")).split(":")
    main = simple_clause(scene, want.plan(), (act,))
    fronted = not of_verb and scene.dice.chance(0.4)
    subject = _explaining(main, of)
    if fronted and of == "s":  # the full subject goes first: "because my aunt was ill, she ..."
        main.subject, subject = subject, main.subject
    tense = "past" if main.tense.name in ("past", "perfect") else "state"
    sub = _state(scene, said, subject, tense)
    english, german, relation = want.link()
    main.linked = [Linked(english, german, sub, relation)]
    main.front = main.linked[0] if fronted else None
    return Sentence(main)


def _explaining(main: Clause, of: str) -> NounPhrase:
    """The pronoun for the subject, the object, or the weather; it must be clear what it means."""
    if of == "w":
        return NounPhrase(gender="n", sex="n")
    subject = main.subject
    if of == "s":
        return pronoun_for(subject)
    target = main.argument("obj", "oblique")
    if target is None:
        raise NoFit
    target.modifier = None  # no "new car because it is old"
    short = pronoun_for(target)
    if not subject.is_pronoun or subject.person == 3:
        other = pronoun_for(subject)
        if (other.number, other.sex) == (short.number, short.sex):
            raise NoFit
    return short


def _state(scene: Scene, said: str, subject: NounPhrase, tense: str) -> Clause:
    """What a cause says: ADJECTIVE, VERB (of the weather), or VERB.DETERMINER.NOUN."""
    act, *owned = said.split(".")
    if "/" not in act:
        return _quality(scene, subject, tense, act)
    if not owned:
        tense = "past_progressive" if tense == "past" else "progressive"
    clause = Clause(subject, _tense_of(subject, tense), lexicon.verb(*act.split("/")))
    if owned:
        thing = NounPhrase(lexicon.noun(owned[1]), determiner=lexicon.DETERMINERS[owned[0]])
        clause.parts = [Argument(thing, "obj")]
    return clause


def events(scene: Scene, want: Parameters) -> Sentence:
    """While my mother was cooking, my father was reading. He opened the door and went home."""
    tense = scene.dice.pick(want("tense"))
    sub_tense = want.first("sub_tense", tense)
    same = bool(want("same"))
    act = scene.dice.pick(_acts(want("verbs"), tense, same))
    other = scene.dice.pick(_acts(want("sub_verbs") or want("verbs"), sub_tense, same))
    wanted = act.subjects & other.subjects or ADULT if same else act.subjects
    subject = scene.full_subject(wanted)
    second = subject if same else scene.full_subject(other.subjects)
    if act.english == other.english or (not same and second.is_pronoun and subject.is_pronoun):
        raise NoFit
    main = simple_clause(scene, Plan((tense,)), (act,), subject)
    sub = simple_clause(scene, Plan((sub_tense,)), (other,), second)
    english, german, relation = want.link()
    main.linked = [Linked(english, german, sub, relation)]
    if relation == "conj":
        sub.tense = lexicon.TENSES["bare"] if same and tense == "future" else sub.tense
        return Sentence(main)
    if scene.dice.chance(0.5):
        main.front = main.linked[0]
    if same:
        later = main if main.front else sub
        later.subject = pronoun_for(subject)
    return Sentence(main)


def _acts(groups: Iterable[str], tense: str, same: bool) -> list[lexicon.Verb]:
    """Events, of people if they have one subject."""
    return [
        v
        for v in verbs(Plan((tense,)), *groups)
        if (v.subjects & PERSON or not same) and "s" not in v.aspect and v.english != "wear"
    ]


# --- clauses as complements ----------------------------------------------------------------------


def reported(scene: Scene, want: Parameters) -> Sentence:
    """I know that the teacher has bought a car. He does not know where the doctor lives."""
    reporter = scene.subject(PERSON)
    if reporter.person == 2:
        raise NoFit
    chosen = lexicon.verb(*scene.dice.pick(want("host")).split("/"))
    host = Clause(reporter, lexicon.TENSES[want.first("tense", "state")], chosen)
    host.negated = bool(want("negated"))
    if want("ask"):
        sub = _circumstance(scene, want.sub_plan(), scene.dice.pick(want("ask")), named=True)
    else:
        plan = want.sub_plan(adverbials=True)
        act = scene.dice.pick(verbs(plan))
        sub = simple_clause(scene, plan, (act,), scene.full_subject(act.subjects))
    english, german, _ = want.link()
    host.linked = [Linked(english, german, sub, "ccomp")]
    return Sentence(host)


def infinitive(scene: Scene, want: Parameters) -> Sentence:
    """The boy tried to open the window. She went to the market to buy bread."""
    english, german, relation = want.link()
    purpose = bool(english)
    subject = scene.subject(ADULT)
    chosen = lexicon.verb(*scene.dice.pick(want("host")).split("/"))
    tense = scene.dice.pick(want("tense"))
    main = Clause(subject, _tense_of(subject, tense), chosen)
    acts = verbs(Plan(("can",)), *want("verbs"))
    if purpose:
        main = simple_clause(scene, Plan((tense,)), (chosen,), subject)
        goal = main.argument("dir")
        there = goal.noun.classes if goal and goal.noun else frozenset()
        acts = [v for v in acts if v.places & there]
    acts = [v for v in acts if v.subjects & PERSON and not v.has("dir")]
    if not acts:
        raise NoFit
    inner = simple_clause(scene, Plan(("can",)), (scene.dice.pick(acts),), subject)
    target = inner.argument("obj")
    if purpose and target and target.determiner is THE and target.noun and not target.possessor:
        # One goes to the market to buy bread, not yet this or that loaf.
        single = target.number == "sg" and target.noun.countable
        target.determiner = lexicon.DETERMINERS["a"] if single else None
    main.linked = [Linked(english, german, inner, relation if purpose else "xcomp")]
    return Sentence(main)


# --- relative clauses ----------------------------------------------------------------------------


def relative(scene: Scene, want: Parameters) -> Sentence:
    """The woman who is singing is friendly. I know the man for whom you are waiting."""
    if want.first("on") == "subject":
        target = _qualified(scene)
        main = _quality(scene, target, scene.dice.pick(want("tense")))
    else:
        acts = [v for v in verbs(want.plan()) if len(v.slots) == 1 and v.has("o", "d")]
        acts = [v for v in acts if v.english not in ("have", "need")]
        main = simple_clause(scene, want.plan(), acts)
        target = main.argument("obj") or main.subject
    antecedent = target.noun
    if antecedent is None or not antecedent.countable or "kin" in antecedent.classes:
        raise NoFit
    if main.subject.person == 2:
        raise NoFit
    target.determiner, target.modifier, target.possessor = THE, None, None
    build = _by_subject if scene.dice.chance(0.45) else _by_object
    target.relative = build(scene, antecedent, target.number)
    if target.relative.verb is main.verb:
        raise NoFit
    return Sentence(main)


_RELATIVE_TENSES = ("progressive", "past", "perfect", "state")


def _relative_pronoun(antecedent: lexicon.Noun, number: str, person: str, thing: str) -> NounPhrase:
    who = antecedent.classes & (PEOPLE | {"baby"})
    return NounPhrase(role=person if who else thing, number=number, gender=antecedent.gender)


def _by_subject(scene: Scene, antecedent: lexicon.Noun, number: str) -> Clause:
    plan = Plan(_RELATIVE_TENSES, adverbials=scene.dice.chance(0.5), time=False)
    acts = [v for v in verbs(plan) if v.subjects & antecedent.classes]
    subject = _relative_pronoun(antecedent, number, "who", "that")
    clause = simple_clause(scene, plan, acts, subject)
    clause.front = subject
    return clause


def _by_object(scene: Scene, antecedent: lexicon.Noun, number: str) -> Clause:
    plan = Plan(_RELATIVE_TENSES)
    pairs = [
        (v, s)
        for v in verbs(plan)
        for s in v.slots
        if s.classes & antecedent.classes
        and (s.role in "od" or (s.role == "p" and s.german and s.english))
        and v.english not in ("have", "drink", "eat", "break")
    ]
    if not pairs:
        raise NoFit
    act, slot = scene.dice.pick(pairs)
    clause = simple_clause(scene, plan, (act,), skip=slot)
    if clause.subject.person == 2 or ("!" in slot.marks and clause.subject.number == "pl"):
        raise NoFit  # not one coat for all
    words = ("whom", "which") if slot.role == "p" else ("that", "that")
    clause.front = argument(slot, _relative_pronoun(antecedent, number, *words))
    clause.parts.append(clause.front)
    return clause


# --- the table -----------------------------------------------------------------------------------

_BUILDERS = {
    builder.__name__: builder
    for builder in (
        simple, question, quality, explained, events, reported, infinitive, relative,
    )
}  # fmt: skip


class Construction(NamedTuple):
    build: Callable[[Scene], Sentence]
    weight: float


def _construction(row: lexicon.Row) -> Construction:
    pairs = (item.split("=") for item in row["parameters"].split())
    want = Parameters({key: tuple(value.split(",")) for key, value in pairs})
    return Construction(partial(_BUILDERS[row["builder"]], want=want), float(row["weight"]))


CONSTRUCTIONS = {row["name"]: _construction(row) for row in lexicon.read("constructions.txt")}
