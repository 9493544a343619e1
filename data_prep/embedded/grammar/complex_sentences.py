"""Constructions with two clauses: subordination, relative clauses, infinitives, coordination."""

from __future__ import annotations

from dataclasses import replace

from data_prep.embedded.grammar import clauses as cl
from data_prep.embedded.grammar.anaphora import pronoun_for
from data_prep.embedded.grammar.causes import reason, state, weather
from data_prep.embedded.grammar.clauses import Plan, simple_clause
from data_prep.embedded.grammar.scene import PERSONS, THE, NoFit, Scene
from data_prep.embedded.grammar.simple_sentences import circumstance, predicate_adjective
from data_prep.embedded.lexicon import FrameSlot, Noun, Verb
from data_prep.embedded.syntax.nodes import (
    Clause,
    Coordination,
    NounPhrase,
    PrepPhrase,
    Subordinate,
)

Result = tuple[Clause, str, str]

PEOPLE = frozenset({"person"})
EFFORT = frozenset({
    "cook", "bake", "clean", "tidy_up", "tidy", "wash", "work", "swim", "dance", "read", "learn",
    "go", "visit", "drive", "repair", "help", "translate", "write", "prepare", "water", "feed",
})  # fmt: skip
OUTDOORS = frozenset({"ride", "swim", "climb", "water", "go", "wait"})
RAINY = frozenset({"read", "cook", "bake", "listen", "work", "sleep"})


def _verbs(scene: Scene, names: frozenset[str], letter: str) -> list[Verb]:
    return [
        v
        for v in scene.lexicon.verbs
        if v.english in names and letter in v.aspect and v.subjects & {"person", "adult"}
    ]


def _fronted(scene: Scene, main: Clause, sub: Subordinate, chance: float = 0.4) -> None:
    """Attach a subordinate clause; opening the sentence, it fills the German pre-field."""
    main.subordinates.append(sub)
    if main.front is None and scene.dice.chance(chance):
        main.front = sub


# --- adverbial clauses -------------------------------------------------------------------------------


def cause(scene: Scene) -> Result:
    """The man sold his car because it was old."""
    known = {c.key: c for c in scene.lexicon.causes}
    verb = scene.dice.pick([v for v in scene.lexicon.verbs if set(v.causes) & set(known)])
    key = scene.dice.pick([k for k in verb.causes if k in known])
    plan = Plan(tenses=("progressive", "present", "past", "perfect", "future"), adverbials=False)
    main = simple_clause(scene, plan, verb)
    if known[key].of == "o" and not main.subject.is_pronoun:
        _tell_apart(main)
    because = Subordinate("because", "weil", reason(scene, known[key], main), "advcl")
    main.subordinates.append(because)
    return main, "main", "."


def _tell_apart(main: Clause) -> None:
    """Subject and object must not both be "he": the pronoun of the reason would be open."""
    target = main.direct or (main.prepositional and main.prepositional[0].noun_phrase)
    if isinstance(target, NounPhrase) and _english_sex(target) == _english_sex(main.subject):
        raise NoFit


def _english_sex(np: NounPhrase) -> str:
    if np.agreement_number == "pl":
        return "they"
    pronoun = pronoun_for(np)
    return f"{pronoun.person}{pronoun.sex}"


def hindrance(scene: Scene) -> Result:
    """The boy cannot come because he is ill."""
    key = scene.dice.pick(("tired", "ill_s", "no_time", "busy_s", "nervous_s"))
    modal = cl.CAN if scene.dice.chance(0.4) else None
    letter = "m" if modal else scene.dice.pick("pf")
    verb = scene.dice.pick(_verbs(scene, EFFORT, letter))
    tense = {"p": "past", "f": "future"}.get(letter, "present")
    plan = Plan(tenses=(tense,), modal=modal, negated=True, adverbials=False)
    main = simple_clause(scene, plan, verb)
    return _with_state(scene, main, key, "because", "weil")


def _with_state(scene: Scene, main: Clause, key: str, english: str, german: str) -> Result:
    fronted = scene.dice.chance(0.4)
    full, short = main.subject, pronoun_for(main.subject)
    tense = "past" if main.tense == "past" else "present"
    sub = state(scene, scene.lexicon.cause(key), full if fronted else short, tense)
    if fronted:
        main.subject = short
    _no_clash(sub, full)
    item = Subordinate(english, german, sub, "advcl")
    main.subordinates.append(item)
    main.front = item if fronted else main.front
    return main, "main", "."


def _no_clash(sub: Clause, subject: NounPhrase) -> None:
    """Children are not busy; what a subject cannot be, it is not."""
    noun = subject.noun
    predicate = sub.predicate
    if (
        noun is not None
        and hasattr(predicate, "adjective")
        and not (
            predicate.adjective.modifies(noun, predicative=True) or noun.proper  # type: ignore[union-attr]
        )
    ):
        raise NoFit


def concession(scene: Scene) -> Result:
    """Although she was tired, she cleaned the kitchen."""
    tense = scene.dice.pick(("past", "progressive", "past"))
    letter = {"past": "p", "progressive": "g"}[tense]
    if scene.dice.chance(0.3):
        verb = scene.dice.pick(_verbs(scene, OUTDOORS, letter))
        main = simple_clause(scene, Plan(tenses=(tense,), adverbials=False), verb)
        key = scene.dice.pick(("rain_w", "cold_w", "snow_w", "late_w", "dark_w"))
        sub_tense = "past" if tense == "past" else "present"
        sub = weather(scene, scene.lexicon.cause(key), sub_tense)
        _fronted(scene, main, Subordinate("although", "obwohl", sub, "advcl"))
        return main, "main", "."
    verb = scene.dice.pick(_verbs(scene, EFFORT, letter))
    main = simple_clause(scene, Plan(tenses=(tense,), adverbials=False), verb)
    key = scene.dice.pick(("tired", "ill_s", "no_time", "hungry"))
    return _with_state(scene, main, key, "although", "obwohl")


def condition(scene: Scene) -> Result:
    """If the weather is good, we will go to the beach. When it rains, she often reads."""
    if scene.dice.chance(0.35):
        return _habit(scene)
    main = simple_clause(
        scene,
        Plan(tenses=("future",), adverbials=False, agentive=True),
        scene.dice.pick(_verbs(scene, EFFORT, "f")),
    )
    if scene.dice.chance(0.45):
        sub = state(scene, scene.lexicon.cause("time"), pronoun_for(main.subject), "present")
    else:
        sub = _weather_is(scene, scene.dice.pick(("good", "beautiful", "bad", "warm", "cold")))
    item = Subordinate("if", "wenn", sub, "advcl")
    _fronted(scene, main, item, 0.5)
    if main.front is item and sub.subject.noun is None:
        main.subject, sub.subject = sub.subject, main.subject
    return main, "main", "."


def _weather_is(scene: Scene, adjective: str) -> Clause:
    from data_prep.embedded.syntax.nodes import Modifier

    noun = NounPhrase(scene.lexicon.noun("weather"), determiner=THE)
    return Clause(noun, predicate=Modifier(scene.lexicon.adjective(adjective)))


def _habit(scene: Scene) -> Result:
    """ "when" of what happens each time: wenn."""
    main = simple_clause(
        scene,
        Plan(tenses=("habitual",), adverbials=False),
        scene.dice.pick(_verbs(scene, RAINY, "h")),
    )
    german = scene.dice.pick(("rain", "snow"))
    sub = weather(scene, scene.lexicon.cause(f"{german}_w"), "present")
    sub.tense = "present"
    _fronted(scene, main, Subordinate("when", "wenn", sub, "advcl"), 0.5)
    return main, "main", "."


def point_in_time(scene: Scene) -> Result:
    """When the doctor came into the room, the child was sleeping: als, for one past event."""
    arrivals = [
        v
        for v in scene.lexicon.verbs
        if v.english in ("come", "open", "arrive", "call", "get", "wake") and "p" in v.aspect
    ]
    plan = Plan(tenses=("past",), adverbials=False)
    event_verb = scene.dice.pick(arrivals)
    event = simple_clause(scene, plan, event_verb, _full_subject(scene, event_verb))
    ongoing = _ongoing(scene, "past progressive")
    _fronted(scene, ongoing, Subordinate("when", "als", event, "advcl"), 0.6)
    return ongoing, "main", "."


def _full_subject(scene: Scene, verb: Verb) -> NounPhrase:
    """Not a pronoun: nothing before it says whom it means."""
    subject = scene.subject(verb.subjects, rich=False)
    if subject.is_pronoun and subject.person != 1:
        raise NoFit
    return subject


def _ongoing(scene: Scene, tense: str) -> Clause:
    verb = scene.dice.pick(
        [v for v in scene.lexicon.verbs if "g" in v.aspect and not v.past_is_base]
    )
    subject = _full_subject(scene, verb)
    clause = simple_clause(scene, Plan(tenses=("progressive",), adverbials=False), verb, subject)
    clause.tense = tense
    return clause


def simultaneity(scene: Scene) -> Result:
    """While my mother was cooking, my father was reading the newspaper."""
    tense = scene.dice.pick(("progressive", "past progressive"))
    main, sub = _ongoing(scene, tense), _ongoing(scene, tense)
    if main.verb is sub.verb or (main.subject.is_pronoun and sub.subject.is_pronoun):
        raise NoFit
    _fronted(scene, main, Subordinate("while", "während", sub, "advcl"), 0.6)
    return main, "main", "."


_DEPARTURES = frozenset({"go", "drive", "leave", "fly", "travel"})


def sequence(scene: Scene) -> Result:
    """Before he went to school, the boy ate an apple. After she had cooked the soup, ..."""
    leaving = scene.dice.pick(_verbs(scene, _DEPARTURES, "p"))
    acting = scene.dice.pick(
        [
            v
            for v in scene.lexicon.verbs
            if cl.is_agentive(v)
            and {"p", "t"} <= v.aspect
            and v.slots
            and v.english not in _DEPARTURES
            and not any(s.role == "dir" for s in v.slots)
        ]
    )
    subject = scene.subject(acting.subjects & leaving.subjects or frozenset({"adult"}), rich=False)
    if subject.agreement_person == 2:
        raise NoFit
    plan = Plan(tenses=("past",), adverbials=False)
    after = scene.dice.chance(0.5)
    first = simple_clause(scene, plan, acting, subject)
    second = simple_clause(scene, plan, leaving, subject)
    main, sub = (second, first) if after else (first, second)
    fronted = scene.dice.chance(0.5)
    short = pronoun_for(subject)
    if fronted:
        main.subject = short
    else:
        sub.subject = short
    if after:
        sub.tense = "pluperfect"
    words = ("after", "nachdem") if after else ("before", "bevor")
    item = Subordinate(*words, sub, "advcl")
    main.subordinates.append(item)
    main.front = item if fronted else None
    return main, "main", "."


# --- complement clauses ---------------------------------------------------------------------------------


def reported_statement(scene: Scene) -> Result:
    """I know that the teacher has bought a car."""
    english, german, tenses = scene.dice.pick(
        (
            ("know", "wissen", ("progressive", "past", "perfect", "future")),
            ("think", "glauben", ("progressive", "past", "perfect", "future")),
            ("hope", "hoffen", ("future", "perfect")),
            ("say", "sagen", ("progressive", "past", "future", "perfect")),
            ("hear", "hören", ("past", "perfect", "future")),
        )
    )
    host = Clause(_reporter(scene), scene.lexicon.verb(english, german))
    if english == "hear":
        host.tense = "perfect"
    plan = Plan(tenses=tenses, may_front=False, rich=False, place=0.2)
    host.subordinates.append(Subordinate("that", "dass", _reported(scene, plan), "ccomp"))
    if english in ("know", "think") and scene.dice.chance(0.15) and host.subject.person != 1:
        host.negated = True
    return host, "main", "."


def _reporter(scene: Scene) -> NounPhrase:
    subject = scene.subject(PEOPLE, rich=False)
    if subject.conjuncts or subject.agreement_person == 2:
        raise NoFit
    return subject


def _reported(scene: Scene, plan: Plan) -> Clause:
    """What is reported is about somebody named, so that no pronoun is open."""
    if scene.dice.chance(0.25):
        subject = _named(scene, PEOPLE)
        tense = scene.dice.pick(("present", "past"))
        return Clause(subject, predicate=predicate_adjective(scene, subject), tense=tense)
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
            tenses=("progressive", "past", "perfect", "future"), may_front=False, rich=False
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


# --- relative clauses ---------------------------------------------------------------------------------


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
    tenses=("progressive", "past", "perfect", "present"), may_front=False, place=0.35, rich=False
)


def _subject_relative(scene: Scene, noun: Noun, number: str) -> Clause:
    plan = replace(_RELATIVE_PLAN, adverbials=scene.dice.chance(0.5))
    verbs = [v for v, _ in cl.verbs_for(scene, plan) if v.subjects & noun.classes]
    if not verbs:
        raise NoFit
    english = "who" if noun.classes & (PERSONS | {"baby"}) else "that"
    return simple_clause(
        scene, plan, scene.dice.pick(verbs), _relative_pronoun(noun, number, english)
    )


def _object_relative(scene: Scene, noun: Noun, number: str) -> Clause:
    plan = replace(_RELATIVE_PLAN, adverbials=False)
    pairs = [
        (v, s)
        for v, _ in cl.verbs_for(scene, plan)
        for s in v.slots
        if s.role in "odp" and s.classes & noun.classes and v.english != "have"
    ]
    if not pairs:
        raise NoFit
    verb, slot = scene.dice.pick(pairs)
    clause = simple_clause(scene, plan, replace(verb, slots=()), _relative_subject(scene, verb))
    clause.verb = verb
    cl.fill_slots(scene, clause, verb, skip=slot)
    person = bool(noun.classes & PERSONS)
    english = "that"
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
        v for v, _ in cl.verbs_for(scene, plan) if len(v.slots) == 1 and v.slots[0].role in "od"
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


# --- infinitives ------------------------------------------------------------------------------------


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
        scene, Plan(modal=cl.WANT, adverbials=False, rich=False), inner_verb, subject
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
    assert isinstance(goal, PrepPhrase) and goal.noun_phrase.noun is not None
    classes = goal.noun_phrase.noun.classes
    verbs = [
        v
        for v in scene.lexicon.verbs
        if v.places & classes
        and cl.is_agentive(v)
        and not any(s.role in ("dir", "loc") for s in v.slots)
        and v.english not in ("wait",)
    ]
    if not verbs:
        raise NoFit
    inner = simple_clause(
        scene, Plan(modal=cl.WANT, adverbials=False, rich=False), scene.dice.pick(verbs), subject
    )
    inner.modal = None
    main.subordinates.append(Subordinate("to", "um", inner, "advcl"))
    return main, "main", "."


# --- coordination -----------------------------------------------------------------------------------


def verb_phrase_coordination(scene: Scene) -> Result:
    """The man opened the door and went into the garden."""
    first_verb = scene.dice.pick(
        [v for v in scene.lexicon.verbs if cl.is_agentive(v) and {"p", "f"} <= v.aspect and v.slots]
    )
    second_verb = scene.dice.pick(_verbs(scene, _DEPARTURES | EFFORT, "p"))
    subject = scene.subject(
        first_verb.subjects & second_verb.subjects or frozenset({"adult"}), rich=False
    )
    tense = scene.dice.pick(("past", "past", "future"))
    if (subject.agreement_person == 2 and tense == "past") or first_verb is second_verb:
        raise NoFit
    plan = Plan(tenses=(tense,), adverbials=False, rich=False)
    first = simple_clause(scene, plan, first_verb, subject)
    second = simple_clause(scene, plan, second_verb, subject)
    if tense == "past" and scene.dice.chance(0.4):
        cl._add_time(scene, first, "past")
        first.adjuncts = [
            a
            for a in first.adjuncts
            if a.kind == "time" and not isinstance(a, PrepPhrase) and a.entry.may_open
        ] or first.adjuncts
        if first.adjuncts and first.adjuncts[-1].kind == "time":
            first.front = first.adjuncts[-1]
    if tense == "future":
        second.tense = "bare"
    first.coordinated = Coordination("and", "und", second, shared_subject=True)
    return first, "main", "."


def clause_coordination(scene: Scene) -> Result:
    """My brother is reading a book, but his sister is sleeping."""
    tense = scene.dice.pick(("progressive", "progressive", "past progressive"))
    main, other = _ongoing(scene, tense), _ongoing(scene, tense)
    if main.verb is other.verb or main.subject.is_pronoun and other.subject.is_pronoun:
        raise NoFit
    but = scene.dice.chance(0.4)
    words = ("but", "aber") if but else ("and", "und")
    main.coordinated = Coordination(*words, other, comma=True, german_comma=but)
    return main, "main", "."
