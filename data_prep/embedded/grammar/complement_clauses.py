"""Complement clauses and infinitives: that, whether, where; to do, in order to do."""

from __future__ import annotations

from data_prep.embedded.grammar import clauses as cl
from data_prep.embedded.grammar.clauses import simple_clause
from data_prep.embedded.grammar.determiners import PERSONS, THE, A
from data_prep.embedded.grammar.plan import WANT, Plan
from data_prep.embedded.grammar.questions import circumstance
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.grammar.verb_sets import (
    ERRANDS,
    PEOPLE,
)
from data_prep.embedded.lexicon import Verb
from data_prep.embedded.syntax.nodes import (
    Clause,
    Modifier,
    NounPhrase,
    PrepPhrase,
    Subordinate,
)

Result = tuple[Clause, str, str]


def reported_statement(scene: Scene) -> Result:
    """I know that the teacher has bought a car."""
    english, german, tenses = scene.dice.pick(
        (
            ("know", "wissen", ("progressive", "present", "past", "perfect", "future")),
            ("think", "glauben", ("progressive", "present", "past", "perfect", "future")),
            ("hope", "hoffen", ("future", "perfect")),
            ("say", "sagen", ("progressive", "present", "past", "future", "perfect")),
            ("hear", "hören", ("past", "perfect", "future")),
        )
    )
    host = Clause(_reporter(scene), scene.lexicon.verb(english, german))
    if english == "hear":
        host.tense = "perfect"
    timed = english != "hope"
    plan = Plan(tenses=tenses, may_front=False, rich=False, place=0.2, time=timed)
    host.subordinates.append(Subordinate("that", "dass", _reported(scene, plan), "ccomp"))
    if english in ("know", "think") and scene.dice.chance(0.15) and host.subject.person != 1:
        host.negated = True
    return host, "main", "."


def _reporter(scene: Scene) -> NounPhrase:
    subject = scene.subject(PEOPLE, rich=False)
    if subject.conjuncts or subject.agreement_person == 2:
        raise NoFit
    return subject


# Passing states, which are news.
NEWS = ("ill", "tired", "happy", "sad", "angry", "nervous", "busy", "hungry", "thirsty")


def _reported(scene: Scene, plan: Plan) -> Clause:
    """What is reported is about somebody named, so that no pronoun is open."""
    if "present" in plan.tenses and scene.dice.chance(0.3):
        subject = _named(scene, PEOPLE)
        tense = scene.dice.pick(("present", "past"))
        adjective = scene.lexicon.adjective(scene.dice.pick(NEWS))
        if subject.noun is not None and not adjective.modifies(subject.noun, predicative=True):
            raise NoFit
        return Clause(subject, predicate=Modifier(adjective), tense=tense)
    verb = scene.dice.weighted(cl.verbs_for(scene, plan))
    return simple_clause(scene, plan, verb, _named(scene, verb.subjects))


def _named(scene: Scene, classes: frozenset[str]) -> NounPhrase:
    subject = scene.subject(classes, rich=False)
    if subject.is_pronoun:
        raise NoFit
    return subject


def reported_question(scene: Scene) -> Result:
    """He does not know whether the train has arrived. She asks where the doctor lives."""
    english, german = scene.dice.pick(
        (("know", "wissen"), ("know", "wissen"), ("wonder", "fragen"))
    )
    host = Clause(_reporter(scene), scene.lexicon.verb(english, german))
    host.negated = english == "know"
    if scene.dice.chance(0.55):
        plan = Plan(
            tenses=("progressive", "present", "past", "perfect", "future"),
            may_front=False,
            rich=False,
        )
        sub = _reported(scene, plan)
        host.subordinates.append(Subordinate("whether", "ob", sub, "ccomp"))
        return host, "main", "."
    plan = Plan(adverbials=False, rich=False)
    sub = circumstance(scene, plan, scene.dice.pick(("where", "whither", "when", "why")))
    if sub.subject.is_pronoun:
        raise NoFit
    host.subordinates.append(Subordinate("", "", sub, "ccomp"))
    return host, "main", "."


# --- infinitives ----


def infinitive(scene: Scene) -> Result:
    """The boy tried to open the window: ..., das Fenster zu öffnen."""
    english, german, tenses = scene.dice.pick(
        (
            ("try", "versuchen", ("past", "perfect", "progressive")),
            ("forget", "vergessen", ("past", "perfect")),
            ("decide", "beschließen", ("past", "perfect")),
            ("begin", "beginnen", ("past",)),
            ("hope", "hoffen", ("present",)),
            ("promise", "versprechen", ("past", "perfect")),
        )
    )
    adult = english in ("decide", "promise")
    subject = scene.subject(frozenset({"adult"} if adult else {"person"}), rich=False)
    tense = scene.dice.pick(tenses)
    if subject.agreement_person == 2 and tense == "past":
        tense = "perfect"
    verb = scene.lexicon.verb(english, german)
    letter = {"begin": "g", "forget": "t", "try": "t", "hope": "f", "promise": "f"}
    inner_verb = scene.dice.pick(_controlled(scene, english, letter.get(english, "t"), subject))
    host = Clause(subject, verb, tense=tense)
    if english == "promise":
        host.indirect = scene.kin_phrase(subject)
    inner = simple_clause(
        scene, Plan(modal=WANT, adverbials=False, rich=False), inner_verb, subject
    )
    inner.modal = None
    host.subordinates.append(Subordinate("", "", inner, "xcomp"))
    return host, "main", "."


def _controlled(scene: Scene, host: str, letter: str, subject: NounPhrase) -> list[Verb]:
    kid = subject.noun is not None and "kid" in subject.noun.classes
    return [
        v
        for v in scene.lexicon.verbs
        if cl.is_agentive(v)
        and letter in v.aspect
        and v.english != host
        and (not kid or "person" in v.subjects)
        and not (host == "begin" and any(slot.role == "dir" for slot in v.slots))
        and not (host == "forget" and v.english in ("lose", "find", "drink", "eat"))
    ]


def purpose(scene: Scene) -> Result:
    """She went to the market to buy bread: ..., um Brot zu kaufen."""
    subject = scene.subject(frozenset({"adult"}), rich=False)
    tense = scene.dice.pick(("past", "progressive", "future"))
    if subject.agreement_person == 2 and tense == "past":
        raise NoFit
    going = scene.dice.pick(
        [
            v
            for v in scene.lexicon.verbs
            if v.english in ("go", "drive")
            and v.german in ("gehen", "fahren")
            and any(s.role == "dir" for s in v.slots)
        ]
    )
    main = simple_clause(scene, Plan(tenses=(tense,), adverbials=False), going, subject)
    goal = main.adjuncts[0]
    assert isinstance(goal, PrepPhrase)
    noun = goal.noun_phrase.noun
    assert noun is not None
    names: set[str] = ERRANDS.get(noun.english, set())
    verbs = [v for v in scene.lexicon.verbs if v.english in names and v.places & noun.classes]
    if not verbs:
        raise NoFit
    inner = simple_clause(
        scene, Plan(modal=WANT, adverbials=False, rich=False), scene.dice.pick(verbs), subject
    )
    inner.modal = None
    if inner.direct is not None:
        _leave_open(inner.direct)
    main.subordinates.append(Subordinate("to", "um", inner, "advcl"))
    return main, "main", "."


def _leave_open(np: NounPhrase) -> None:
    """One goes to the market to buy bread, not yet this or that loaf."""
    if np.noun is None or np.noun.classes & PERSONS or np.determiner is not THE:
        return
    np.determiner = A if np.number == "sg" and np.noun.countable else None
