"""The constructions of the grammar, as the table constructions.txt sets them up.

A builder makes a tree of a `Scene` and its row of the table; it raises `NoFit` when its random
choices have led nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from data_prep.embedded import lexicon
from data_prep.embedded.lexicon import ADVERBIALS, DETERMINERS, TENSES, Adverbial, Row, Slot, Verb
from data_prep.embedded.scene import THE, NoFit, Scene, pronoun_for
from data_prep.embedded.tree import PERSON, Clause, Linked, NounPhrase, Part, Sentence

# --- clauses -------------------------------------------------------------------------------------


def clause(
    scene: Scene,
    tenses: str,
    group: str = "",
    subject: NounPhrase | None = None,
    *,
    negated: bool = False,
    fits: Callable[[Verb], bool] = lambda verb: True,
    without: Callable[[Slot], bool] = lambda slot: False,
) -> Clause:
    """A clause in one of the tenses, with a verb of the group that ``fits`` and the subject takes;
    slots ``without`` which it is are left open."""
    tense = scene.dice.weighted((t, t.weight) for t in map(TENSES.__getitem__, tenses.split(",")))
    verb = scene.dice.pick(
        [
            verb
            for verb in lexicon.verbs_of(tense.letter, group)
            if fits(verb) and (subject is None or verb.subjects & subject.classes)
        ]
    )
    node = Clause(subject or scene.subject(verb.subjects), tense, verb, negated=negated)
    if group == "copula":
        node.predicate = scene.adjective(node.subject.classes)
    for slot in verb.slots:
        if not without(slot):
            # An indefinite object under negation would mean "not a single one".
            often = 0.0 if "a" not in verb.tenses or slot.kind != "obj" else 0.3 if negated else 1.0
            node.parts.append(scene.argument(slot, node.subject, often))
    if tense.name == "habitual":
        node.parts.append(_adverbial(scene, lambda a: a.kind == "habit" and tense.tag in a.tags))
    return node


def _adverbial(scene: Scene, fits: Callable[[Adverbial], bool]) -> Part:
    entry = scene.dice.pick([a for a in ADVERBIALS if fits(a)])
    return Part(entry.kind, fixed=entry)


def add_adverbials(scene: Scene, node: Clause) -> Clause:
    """Time, then perhaps manner or a place; opening the clause, time inverts subject and verb."""
    verb, tense, dice = node.verb, node.tense, scene.dice
    kinds = ("time",) if node.negated else ("time", "habit", "aspect")
    if "s" not in verb.tenses and tense.name != "habitual" and dice.chance(tense.time):
        timed = _adverbial(scene, lambda a: a.kind in kinds and tense.tag in a.tags)
        node.parts.append(timed)
        may_open = timed.fixed is not None and timed.fixed.flags and not node.subject.role
        if may_open and dice.chance(0.35):
            node.front = timed
    if not node.negated and verb.manner and dice.chance(0.25):
        node.parts.append(_adverbial(scene, lambda a: bool(a.tags & verb.manner)))
    elif not node.negated and verb.places and dice.chance(0.25):
        node.parts.append(scene.place("at", verb.places))
    return node


# --- builders ------------------------------------------------------------------------------------


def simple(scene: Scene, row: Row) -> Sentence:
    """The doctor is reading a book. Tomorrow we will not visit my aunt."""
    return Sentence(add_adverbials(scene, clause(scene, row["tense"], negated=bool(row["not"]))))


def quality(scene: Scene, row: Row) -> Sentence:
    """The soup is hot. My brother was not tired."""
    return Sentence(clause(scene, row["tense"], "copula", negated=scene.dice.chance(0.15)))


def question(scene: Scene, row: Row) -> Sentence:
    """Are you reading a book? Who has bought the car? Why is the child crying?"""
    asked, tense = row["ask"], row["tense"]
    if asked == "polar":
        return Sentence(add_adverbials(scene, clause(scene, tense)), "question", "?")
    if asked == "subject":
        return Sentence(
            add_adverbials(scene, clause(scene, tense, subject=NounPhrase(role="who"))), stop="?"
        )
    if asked == "object":
        node = clause(scene, tense, fits=_transitive, without=lambda slot: slot.kind == "obj")
        slot = next(slot for slot in node.verb.slots if slot.kind == "obj")
        node.front = Part("obj", _asked_object(scene, slot), slot.preposition)
    else:
        asked = scene.dice.pick(asked.split(","))
        where = asked == "where"
        node = clause(
            scene, tense,
            fits=lambda v: not where or v.has("at") or (bool(v.places) and not v.has("to")),
            without=lambda slot: where and slot.kind == "at",
        )  # fmt: skip
        node.front = _adverbial(scene, lambda a: asked in a.tags)
    node.parts.append(node.front)
    return Sentence(node, "question", "?")


def _transitive(verb: Verb) -> bool:
    return any(s.kind == "obj" and s.preposition.case == "acc" for s in verb.slots)


def _asked_object(scene: Scene, slot: Slot) -> NounPhrase:
    thing = scene.noun(slot.classes)
    if thing.classes & PERSON:
        return NounPhrase(role="who")
    if thing.countable and scene.dice.chance(0.6):
        return NounPhrase(thing, determiner=DETERMINERS["which"])
    return NounPhrase(role="what")


def linked(scene: Scene, row: Row) -> Sentence:
    """While my mother was cooking, my father was reading. He tried to open the window."""
    main = clause(scene, row["tense"], row["verbs"], negated=bool(row["not"]))
    subject = _second_subject(main, row["about"])
    second = clause(scene, row["sub_tense"], row["sub_verbs"], subject)
    if second.verb.english == main.verb.english:
        raise NoFit
    english, german, relation, form = row["link"].replace("_", "").split("/")
    main.linked = Linked(english, german, relation, form, second)
    if (relation, form) == ("advcl", "sub") and row["about"] != "object" and scene.dice.chance(0.4):
        main.front = main.linked
        if row["about"]:  # the full subject goes first: "because my aunt was ill, she ..."
            main.subject, second.subject = second.subject, main.subject
    return Sentence(main)


def _second_subject(main: Clause, about: str) -> NounPhrase | None:
    """It must be clear whom a pronoun means."""
    if not about or about == "same":
        return main.subject if about else None
    subject, target = main.subject, main.argument("obj")
    if about == "subject":
        return pronoun_for(subject)
    if target is None or target.noun is None:
        raise NoFit
    target.adjective = None  # no "new car because it is old"
    meant, other = pronoun_for(target), pronoun_for(subject)
    if (meant.number, meant.sex) == (other.number, other.sex):
        raise NoFit
    return meant


def relative(scene: Scene, row: Row) -> Sentence:
    """The woman who is singing is friendly. I know the man for whom you are waiting."""
    on_subject = row["verbs"] == "copula"
    main = clause(
        scene, row["tense"], row["verbs"],
        fits=lambda v: on_subject or (_transitive(v) and not v.prefix and len(v.slots) == 1),
    )  # fmt: skip
    target = main.subject if on_subject else main.argument("obj")
    antecedent = target.noun if target else None
    if target is None or antecedent is None or not antecedent.countable:
        raise NoFit
    if antecedent.classes & {"kin", "relational"} or "b" in antecedent.flags:
        raise NoFit
    target.determiner, target.adjective = THE, None
    person = bool(antecedent.classes & (PERSON | {"baby", "kid"}))
    relation = partial(NounPhrase, number=target.number, antecedent=antecedent)

    def other(verb: Verb) -> bool:
        return verb.english != main.verb.english

    if scene.dice.chance(0.5):
        pronoun = relation(role="who" if person else "that")
        target.relative = clause(scene, row["sub_tense"], subject=pronoun, fits=other)
        return Sentence(main)

    def asked(slot: Slot) -> bool:
        return slot.kind in ("obj", "obl") and bool(slot.classes & antecedent.classes)

    inner = clause(
        scene, row["sub_tense"], fits=lambda v: other(v) and any(map(asked, v.slots)), without=asked
    )
    slot = next(filter(asked, inner.verb.slots))
    governed = "whom" if person else "which"
    pronoun = relation(role=governed if slot.preposition.english else "that")
    inner.front = Part(slot.kind, pronoun, slot.preposition)
    inner.parts.append(inner.front)
    target.relative = inner
    return Sentence(main)


# --- the table -----------------------------------------------------------------------------------

_BUILDERS = {b.__name__: b for b in (simple, quality, question, linked, relative)}


class Construction(NamedTuple):
    build: Callable[[Scene], Sentence]
    weight: float


CONSTRUCTIONS = {
    row["name"]: Construction(partial(_BUILDERS[row["builder"]], row=row), float(row["weight"]))
    for row in lexicon.read("constructions.txt")
}
