"""Adverbial clauses: cause, concession, condition, time."""

from __future__ import annotations

from data_prep.embedded.grammar.anaphora import pronoun_for
from data_prep.embedded.grammar.causes import reason, state, weather
from data_prep.embedded.grammar.clauses import simple_clause
from data_prep.embedded.grammar.determiners import THE
from data_prep.embedded.grammar.plan import CAN, Plan
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.grammar.verb_sets import (
    DEPARTURES,
    EFFORT,
    FINE_WEATHER,
    FIRST_ACTS,
    OUTDOORS,
    RAINY,
    full_subject,
    ongoing,
    verbs_named,
)
from data_prep.embedded.syntax.nodes import (
    Clause,
    Modifier,
    NounPhrase,
    Subordinate,
)

Result = tuple[Clause, str, str]


def attach(scene: Scene, main: Clause, sub: Subordinate, chance: float = 0.4) -> None:
    """Attach a subordinate clause; opening the sentence, it fills the German pre-field."""
    main.subordinates.append(sub)
    if main.front is None and scene.dice.chance(chance):
        main.front = sub


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
    key = scene.dice.pick(("tired", "ill_s", "no_time", "busy_s"))
    modal = CAN if scene.dice.chance(0.4) else None
    letter = "m" if modal else scene.dice.pick("pf")
    verb = scene.dice.pick(verbs_named(scene, EFFORT, letter))
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
        and isinstance(predicate, Modifier)
        and not (predicate.adjective.modifies(noun, predicative=True) or noun.proper)
    ):
        raise NoFit


def concession(scene: Scene) -> Result:
    """Although she was tired, she cleaned the kitchen."""
    tense = scene.dice.pick(("past", "progressive", "past"))
    letter = {"past": "p", "progressive": "g"}[tense]
    if scene.dice.chance(0.3):
        verb = scene.dice.pick(verbs_named(scene, OUTDOORS, letter))
        main = simple_clause(scene, Plan(tenses=(tense,), adverbials=False), verb)
        key = scene.dice.pick(("rain_w", "cold_w", "snow_w", "late_w", "dark_w"))
        sub_tense = "past" if tense == "past" else "present"
        sub = weather(scene, scene.lexicon.cause(key), sub_tense)
        attach(scene, main, Subordinate("although", "obwohl", sub, "advcl"))
        return main, "main", "."
    verb = scene.dice.pick(verbs_named(scene, EFFORT, letter))
    main = simple_clause(scene, Plan(tenses=(tense,), adverbials=False), verb)
    key = scene.dice.pick(("tired", "ill_s", "no_time"))
    return _with_state(scene, main, key, "although", "obwohl")


def condition(scene: Scene) -> Result:
    """If the weather is good, we will go to the beach. When it rains, she often reads."""
    if scene.dice.chance(0.35):
        return _habit(scene)
    free = scene.dice.chance(0.55)
    verbs = verbs_named(scene, EFFORT if free else FINE_WEATHER, "f")
    if not free:
        verbs = [v for v in verbs if v.english != "play" or "kid" in v.subjects]
    verb = scene.dice.pick(verbs)
    main = simple_clause(scene, Plan(tenses=("future",), adverbials=False, agentive=True), verb)
    if not free and verb.english == "go":
        main.adjuncts = [scene.goal(frozenset({"green", "beach", "lake", "sea"}))]
    if not free and verb.english == "work":
        main.adjuncts = [scene.place(frozenset({"garden"}), main.subject)]
    if free:
        sub = state(scene, scene.lexicon.cause("time"), pronoun_for(main.subject), "present")
    else:
        sub = _weather_is(scene, scene.dice.pick(("good", "beautiful", "warm")))
    item = Subordinate("if", "wenn", sub, "advcl")
    attach(scene, main, item, 0.5)
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
        scene.dice.pick(verbs_named(scene, RAINY, "h")),
    )
    german = scene.dice.pick(("rain", "snow"))
    sub = weather(scene, scene.lexicon.cause(f"{german}_w"), "present")
    sub.tense = "present"
    attach(scene, main, Subordinate("when", "wenn", sub, "advcl"), 0.5)
    return main, "main", "."


def point_in_time(scene: Scene) -> Result:
    """When the doctor came into the room, the child was sleeping: als, for one past event."""
    arrivals = [
        v
        for v in scene.lexicon.verbs
        if v.english in ("come", "open", "arrive", "call", "get", "wake")
        and "p" in v.aspect
        and (v.english != "get" or v.particle)
    ]
    plan = Plan(tenses=("past",), adverbials=False)
    event_verb = scene.dice.pick(arrivals)
    event = simple_clause(scene, plan, event_verb, full_subject(scene, event_verb))
    main = ongoing(scene, "past progressive")
    attach(scene, main, Subordinate("when", "als", event, "advcl"), 0.6)
    return main, "main", "."


def simultaneity(scene: Scene) -> Result:
    """While my mother was cooking, my father was reading the newspaper."""
    tense = scene.dice.pick(("progressive", "past progressive"))
    main, sub = ongoing(scene, tense), ongoing(scene, tense)
    if main.verb is sub.verb or (main.subject.is_pronoun and sub.subject.is_pronoun):
        raise NoFit
    attach(scene, main, Subordinate("while", "während", sub, "advcl"), 0.6)
    return main, "main", "."


def sequence(scene: Scene) -> Result:
    """Before he went to school, the boy ate an apple. After she had cooked the soup, ..."""
    leaving = scene.dice.pick(verbs_named(scene, DEPARTURES, "p"))
    acting = scene.dice.pick(
        [
            v
            for v in scene.lexicon.verbs
            if v.english in FIRST_ACTS | EFFORT
            and v.german != "bekommen"
            and {"p", "t"} <= v.aspect
            and v.slots
            and v.subjects & {"person", "adult"}
            and v.english not in DEPARTURES
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
