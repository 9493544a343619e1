"""The constructions of the grammar, as the table constructions.txt sets them up.

A builder makes a tree of a `Scene` and its row of the table; it raises `NoFit` when its random
choices have led nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

from data_prep.embedded import lexicon
from data_prep.embedded.lexicon import ADVERBIALS, DETERMINERS, TENSES, Adverbial, Row, Slot
from data_prep.embedded.scene import PEOPLE, THE, NoFit, Scene, pronoun_for
from data_prep.embedded.tree import PERSON, Clause, Linked, NounPhrase, Part, Sentence

# --- clauses -------------------------------------------------------------------------------------


def clause(
    scene: Scene,
    tenses: str,
    group: str = "",
    subject: NounPhrase | None = None,
    *,
    negated: bool = False,
    asked: Callable[[Slot], bool] | None = None,
) -> Clause:
    """A clause in one of the tenses, with a verb of the group that the subject can do.

    ``asked`` says for which slot the verb must have; it is left open.
    """
    tense = scene.dice.weighted((t, t.weight) for t in map(TENSES.__getitem__, tenses.split(",")))
    fitting = lexicon.verbs_of(tense.letter, group)
    if subject is not None:
        fitting = [v for v in fitting if v.subjects & subject.classes]
    if asked is not None:
        fitting = [v for v in fitting if any(map(asked, v.slots))]
    verb = scene.dice.pick(fitting)
    left = next(filter(asked, verb.slots)) if asked else None
    node = Clause(subject or scene.subject(verb.subjects), tense, verb, negated=negated)
    if group == "copula":
        node.predicate = scene.adjective(node.subject.classes)
    for slot in verb.slots:
        if slot is not left:
            # Under negation an indefinite object would mean "not a single one": kein.
            indefinite = "a" in verb.tenses and slot.kind == "obj" and not negated
            node.parts.append(scene.argument(slot, node, indefinite))
    return node


def _adverbial(scene: Scene, fits: Callable[[Adverbial], bool]) -> Part:
    entry = scene.dice.pick([a for a in ADVERBIALS if fits(a)])
    return Part(entry.kind, fixed=entry)


def _add_adverbials(scene: Scene, node: Clause, may_open: bool = False) -> Clause:
    """Time, then perhaps manner or a place; opening the clause, time inverts subject and verb."""
    verb, tense, dice = node.verb, node.tense, scene.dice
    kinds = ("time",) if node.negated else ("time", "habit")
    if "s" not in verb.tenses and dice.chance(tense.time):
        timed = _adverbial(scene, lambda a: a.kind in kinds and tense.tag in a.tags)
        node.parts.append(timed)
        if may_open and timed.fixed and timed.fixed.opens and dice.chance(0.35):
            node.front = timed
    if verb.manner and not node.negated and dice.chance(0.25):
        node.parts.append(_adverbial(scene, lambda a: bool(a.tags & verb.manner)))
    elif verb.places and not node.negated and dice.chance(0.25):
        node.parts.append(scene.place("at", verb.places))
    return node


# --- builders ------------------------------------------------------------------------------------


def simple(scene: Scene, row: Row) -> Sentence:
    """Tomorrow we will not visit my aunt. The soup is hot. Who has bought the car?"""
    subject = NounPhrase(sex="who") if row["ask"] == "subject" else None
    node = clause(scene, row["tense"], row["verbs"], subject, negated=bool(row["not"]))
    node = _add_adverbials(scene, node, may_open=subject is None)
    return Sentence(node, stop="?" if subject else ".")


def question(scene: Scene, row: Row) -> Sentence:
    """Are you reading a book? Which book have you read? Why is the child crying?"""
    ask = row["ask"]
    if not ask:
        return Sentence(_add_adverbials(scene, clause(scene, row["tense"])), "question", "?")
    if ask == "object":
        node = clause(scene, row["tense"], asked=_is_object)
        slot = next(filter(_is_object, node.verb.slots))
        node.front = Part("obj", _asked_object(scene, slot), slot.preposition)
    else:
        node = clause(scene, row["tense"])
        node.front = _adverbial(scene, lambda a: a.kind == ask)
    node.parts.append(node.front)
    return Sentence(node, "question", "?")


def _is_object(slot: Slot) -> bool:
    return slot.kind == "obj" and slot.preposition.case == "acc"


def _asked_object(scene: Scene, slot: Slot) -> NounPhrase:
    thing = scene.noun(slot.classes)
    if thing.classes & PERSON:
        return NounPhrase(sex="who")
    if thing.german_plural and scene.dice.chance(0.6):
        return NounPhrase(thing, determiner=DETERMINERS["which"])
    return NounPhrase(sex="what")


def linked(scene: Scene, row: Row) -> Sentence:
    """While my mother was cooking, my father was reading. He tried to open the window."""
    main = clause(scene, row["tense"], row["verbs"], negated=bool(row["not"]))
    about = row["about"]
    subject = main.subject if about == "same" else _pronoun_for(main, about) if about else None
    second = clause(scene, row["sub_tense"], row["sub_verbs"], subject)
    if second.verb.english == main.verb.english:
        raise NoFit
    main.linked = Linked(row["english"], row["german"], row["relation"], row["form"], second)
    if row["opens"] and scene.dice.chance(0.4):
        main.front = main.linked
        if about:  # the full subject goes first: "because my aunt was ill, she ..."
            main.subject, second.subject = second.subject, main.subject
    return Sentence(main)


def _pronoun_for(main: Clause, about: str) -> NounPhrase:
    """For the subject or the object; it must be clear which of them it means."""
    subject = pronoun_for(main.subject)
    if about == "subject":
        return subject
    target = main.argument("obj")
    if target is None or target.noun is None:
        raise NoFit
    target.adjective = None  # no "new car because it is old"
    meant = pronoun_for(target)
    if (meant.number, meant.sex) == (subject.number, subject.sex):
        raise NoFit
    return meant


def relative(scene: Scene, row: Row) -> Sentence:
    """The woman who is singing is friendly. I know the man for whom you are waiting."""
    main = clause(scene, row["tense"], row["verbs"])
    target = main.subject if row["verbs"] == "copula" else main.argument("obj")
    # German would rather have the clause of an object behind a separable prefix, or another part.
    if target is None or target.noun is None or main.verb.prefix or len(main.parts) > 1:
        raise NoFit
    noun = target.noun
    if not noun.german_plural or noun.classes & {"kin", "relational"}:
        raise NoFit
    target.determiner, target.adjective = THE, None
    person = bool(noun.classes & PEOPLE)
    pronoun = NounPhrase(None, target.number, role="who" if person else "that", antecedent=noun)
    if scene.dice.chance(0.5):
        inner = clause(scene, row["sub_tense"], subject=pronoun)
    else:
        inner = _relative_on_object(scene, row["sub_tense"], pronoun)
    if inner.verb.english == main.verb.english:
        raise NoFit
    target.relative = inner
    return Sentence(main)


def _relative_on_object(scene: Scene, tenses: str, pronoun: NounPhrase) -> Clause:
    def asked(slot: Slot) -> bool:
        return slot.kind in ("obj", "obl") and bool(slot.classes & pronoun.classes)

    node = clause(scene, tenses, asked=asked)
    slot = next(filter(asked, node.verb.slots))
    governed = "whom" if pronoun.role == "who" else "which"
    pronoun.role = governed if slot.preposition.english else "that"
    node.front = Part(slot.kind, pronoun, slot.preposition)
    node.parts.append(node.front)
    return node


CONSTRUCTIONS = lexicon.read("constructions.txt")
_BUILDERS = {build.__name__: build for build in (simple, question, linked, relative)}


def build(scene: Scene, row: Row) -> Sentence:
    """A sentence of the construction in this row of the table."""
    return _BUILDERS[row["builder"]](scene, row)
