"""Constructions with one clause: statements, questions, requests, copular sentences."""

from __future__ import annotations

from dataclasses import replace

from data_prep.embedded.grammar import clauses as cl
from data_prep.embedded.grammar.clauses import Plan, simple_clause
from data_prep.embedded.grammar.scene import (
    A,
    BARE_PROFESSION,
    PERSONS,
    THE,
    THIS,
    WHICH,
    NoFit,
    Scene,
)
from data_prep.embedded.lexicon import FrameSlot, Noun, Verb
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Determiner,
    Modifier,
    NounPhrase,
    PrepPhrase,
    WhAdverb,
)

Result = tuple[Clause, str, str]

ASKABLE = ("progressive", "past", "perfect", "future", "present")
DU = (2, "sg", "")


def statement(scene: Scene) -> Result:
    return simple_clause(scene, Plan(place=0.4)), "main", "."


def negation(scene: Scene) -> Result:
    plan = Plan(negated=True, tenses=("progressive", "present", "past", "perfect", "future"))
    return simple_clause(scene, plan), "main", "."


def modal(scene: Scene) -> Result:
    choice = scene.dice.weighted((*cl.MODALS, (cl.WANTED, 1), (cl.HAD_TO, 1.5), (cl.LIKE_TO, 4)))
    clause = simple_clause(scene, Plan(modal=choice))
    if choice.tense == "past":
        options = cl._fixed(scene, {"time"}, "past")
        if scene.dice.chance(0.6):
            clause.adjuncts.append(AdverbialUse(scene.dice.pick(options)))
            cl.front_something(scene, clause, "past")
    return clause, "main", "."


def modal_negated(scene: Scene) -> Result:
    choice = scene.dice.weighted(
        ((cl.CAN, 4), (cl.MUST, 2), (cl.SHOULD, 2), (cl.WANT, 3), (cl.HAVE_TO, 2))
    )
    return simple_clause(scene, Plan(modal=choice, negated=True)), "main", "."


# --- copular sentences ---------------------------------------------------------------------------


def quality(scene: Scene) -> Result:
    """The soup is very hot. My brother was not tired yesterday."""
    subject = qualified_subject(scene)
    adjective = predicate_adjective(scene, subject)
    tense = scene.dice.weighted((("present", 3), ("past", 1.5)))
    clause = Clause(subject, predicate=adjective, tense=tense)
    if subject.agreement_person == 2 and tense == "past":
        clause.tense = "present"
    clause.negated = scene.dice.chance(0.15)
    if not adjective.comparative and adjective.adjective.gradable and not clause.negated:
        adjective.intensifier = scene.dice.weighted((("", 5), ("very", 2), ("too", 0.6)))
    return clause, "main", "."


def qualified_subject(scene: Scene) -> NounPhrase:
    """Anything that an adjective can be said of."""
    if scene.dice.chance(0.4):
        return scene.subject(frozenset({"person"}), rich=False)
    adjective = scene.dice.pick(scene.lexicon.adjectives)
    phrase = scene.common(adjective.classes | adjective.predicative_classes, rich=False)
    if phrase.determiner is A:
        phrase.determiner = THE
    return phrase


def predicate_adjective(scene: Scene, subject: NounPhrase) -> Modifier:
    noun = subject.noun
    if noun is None or subject.conjuncts:
        noun = scene.lexicon.noun("man")  # pronouns and pairs: what can be said of people
    adjective = scene.adjective(noun, predicative=True)
    if adjective is None:
        raise NoFit
    return Modifier(adjective)


def profession(scene: Scene) -> Result:
    """Her brother is a doctor: no article in German."""
    subject = scene.subject(frozenset({"person", "adult"}), rich=False)
    if subject.agreement_number == "pl" or (subject.noun and "prof" in subject.noun.classes):
        raise NoFit
    noun = _profession_for(scene, subject)
    predicate = NounPhrase(noun, determiner=BARE_PROFESSION)
    clause = Clause(subject, predicate=predicate, tense=scene.dice.pick(("present", "past")))
    if subject.person == 2:
        clause.tense = "present"
    clause.negated = scene.dice.chance(0.2)
    return clause, "main", "."


def _profession_for(scene: Scene, subject: NounPhrase) -> Noun:
    """Of the subject's natural gender, for German names professions by it."""
    gender = subject.noun.gender if subject.noun else subject.gender
    noun = scene.noun(frozenset({"prof"}))
    if gender != noun.gender and gender:
        raise NoFit
    return noun


def comparison(scene: Scene) -> Result:
    """The horse is bigger than the dog."""
    adjective = scene.dice.pick([a for a in scene.lexicon.adjectives if a.gradable])
    first = scene.common(adjective.classes, rich=False, plural=0.1)
    assert first.noun is not None
    alike = [
        n
        for n in scene.lexicon.nouns
        if adjective.modifies(n)
        and n.classes & first.noun.classes - {n.english}
        and n.countable == first.noun.countable
        and "kin" not in n.classes
        and n.english not in scene.used
    ]
    if not alike:
        raise NoFit
    if first.determiner is None or not first.determiner.definite:
        first.determiner = THE
    second = NounPhrase(scene.dice.pick(alike), first.number, determiner=THE)
    predicate = Modifier(adjective, comparative=True, than=second)
    return Clause(first, predicate=predicate), "main", "."


# What lies, what stands, and where: English says "is", German names the posture.
_LYING = frozenset({"book", "letter", "paper", "key", "tableware2", "ticket", "map", "umbrella"})
_POSTURES = (
    (_LYING, "liegen", "on", "auf", frozenset({"surface", "chair", "bed", "sofa", "shelf"})),
    (_LYING, "liegen", "in", "in", frozenset({"bag", "drawer", "suitcase", "box"})),
    (_LYING, "liegen", "under", "unter", frozenset({"table", "bed", "sofa", "chair"})),
    (frozenset({"stand"}), "stehen", "on", "auf", frozenset({"surface", "shelf"})),
    (frozenset({"clothing"}), "hängen", "in", "in", frozenset({"cupboard"})),
    (frozenset({"image", "mirror"}), "hängen", "over", "über", frozenset({"sofa", "bed", "desk"})),
    (
        frozenset({"vehicleless", "car", "bicycle", "motorcycle"}),
        "stehen",
        "behind",
        "hinter",
        frozenset({"house", "church", "school", "hotel", "museum", "supermarket"}),
    ),
    (
        frozenset({"bench", "tree"}),
        "stehen",
        "in front of",
        "vor",
        frozenset({"house", "church", "school", "library", "castle"}),
    ),
    (
        frozenset({"bed", "chair", "desk", "lamp"}),
        "stehen",
        "next to",
        "neben",
        frozenset({"window", "door", "cupboard", "sofa"}),
    ),
)


def position(scene: Scene) -> Result:
    """The key is on the table: der Schlüssel liegt auf dem Tisch."""
    things, german, english_prep, german_prep, grounds = scene.dice.pick(_POSTURES)
    subject = scene.common(things)
    if subject.determiner is A:
        subject.determiner = THE
    ground = NounPhrase(scene.noun(grounds), determiner=THE)
    scene._enrich(ground, 0.25)
    predicate = PrepPhrase(english_prep, german_prep, "dat", ground, "place")
    clause = Clause(subject, predicate=predicate, copula_german=german)
    clause.tense = scene.dice.pick(("present", "present", "past"))
    return clause, "main", "."


_SIGHTS = frozenset(
    {
        "church",
        "museum",
        "hotel",
        "theatre",
        "library",
        "castle",
        "park",
        "market",
        "station",
        "school",
        "restaurant",
        "hospital",
        "factory",
        "cinema",
    }
)


def existence(scene: Scene) -> Result:
    """There is an old church in this village: in diesem Dorf gibt es eine alte Kirche."""
    noun = scene.noun(_SIGHTS)
    number = "pl" if scene.dice.chance(0.25) else "sg"
    negated = scene.dice.chance(0.15)
    number = "sg" if negated else number
    determiner = A if number == "sg" else scene.dice.pick((*_counts(), cl_many()))
    what = NounPhrase(noun, number, determiner=determiner)
    if not negated:
        scene._enrich(what, 0.7)
    where = NounPhrase(
        scene.noun(frozenset({"town", "island"})), determiner=scene.dice.pick((THIS, THE, THIS))
    )
    assert where.noun is not None and where.noun.place is not None
    use = where.noun.place
    ground = PrepPhrase(use.english_at, use.german_at, "dat", where, "place")
    if scene.dice.chance(0.3):
        ground = scene.city()
    clause = Clause(what, existential=True, copula_german="geben", adjuncts=[ground])
    clause.tense = "present"
    clause.negated = negated
    return clause, "main", "."


def _counts() -> tuple[Determiner, ...]:
    from data_prep.embedded.grammar.scene import NUMERALS

    return NUMERALS


def cl_many() -> Determiner:
    from data_prep.embedded.grammar.scene import MANY

    return MANY


def topic(scene: Scene) -> Result:
    """This film I have already seen: the object opens the sentence in both languages."""
    subject = scene.pronoun(((1, "sg", ""), (1, "pl", "")))
    verb = scene.dice.pick(
        [v for v in scene.lexicon.verbs if "t" in v.aspect and _things(v) and len(v.slots) == 1]
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
    return any(slot.role == "o" and not slot.classes & _PEOPLE for slot in verb.slots)


_PEOPLE = frozenset(
    {
        "person",
        "adult",
        "kid",
        "kin",
        "name",
        "prof",
        "relational",
        "pet",
        "animal",
        "friend",
        "teacher",
        "pupil",
        "baby",
    }
)


# --- questions and requests ------------------------------------------------------------------------


def polar_question(scene: Scene) -> Result:
    choice = scene.dice.weighted(((None, 6), (cl.CAN, 1), (cl.WANT, 1), (cl.HAVE_TO, 0.7)))
    plan = Plan(tenses=ASKABLE, modal=choice, may_front=False, rich=False)
    verb = scene.dice.weighted(cl.verbs_for(scene, plan))
    return simple_clause(scene, plan, verb, _asked_subject(scene, verb, plan)), "question", "?"


def _asked_subject(scene: Scene, verb: Verb, plan: Plan) -> NounPhrase | None:
    """Questions often address the hearer."""
    if verb.subjects & {"person", "adult"} and scene.dice.chance(0.4):
        return scene.pronoun((DU,))
    return None


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
    subject = _asked_subject(scene, verb, plan) or scene.subject(verb.subjects, rich=False)
    slot = next(s for s in verb.slots if s.role == "o")
    clause = simple_clause(scene, plan, replace(verb, slots=()), subject)
    clause.verb = verb
    cl.fill_slots(scene, clause, verb, skip=slot)
    clause.direct = asked_object(scene, slot)
    clause.front = clause.direct
    return clause, "question", "?"


def asked_object(scene: Scene, slot: FrameSlot) -> NounPhrase:
    if slot.classes & _PEOPLE:
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
        return "dir" in roles and len(verb.slots) == 1
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
