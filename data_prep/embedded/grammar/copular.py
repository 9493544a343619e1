"""Copular sentences: qualities, professions, comparison, position, existence."""

from __future__ import annotations

from data_prep.embedded.grammar.determiners import (
    BARE_PROFESSION,
    MANY,
    NO,
    NUMERALS,
    PERSONS,
    THE,
    THIS,
    A,
)
from data_prep.embedded.grammar.scene import NoFit, Scene, place_use
from data_prep.embedded.lexicon import Noun
from data_prep.embedded.syntax.nodes import (
    Clause,
    Modifier,
    NounPhrase,
    PrepPhrase,
)

Result = tuple[Clause, str, str]


def quality(scene: Scene) -> Result:
    """The soup is very hot. My brother was not tired yesterday."""
    subject = qualified_subject(scene)
    adjective = predicate_adjective(scene, subject)
    tense = scene.dice.weighted((("present", 3), ("past", 1.5)))
    clause = Clause(subject, predicate=adjective, tense=tense)
    if subject.agreement_person == 2 and tense == "past":
        clause.tense = "present"
    clause.negated = scene.dice.chance(0.15)
    if subject.determiner is THE and subject.noun and not subject.modifiers:
        scene.perhaps_owned(subject)
    if not adjective.comparative and adjective.adjective.gradable and not clause.negated:
        adjective.intensifier = scene.dice.weighted(
            (("", 5), ("very", 2), ("too", 0.6 * (not _animate(subject))))
        )
    return clause, "main", "."


def _animate(np: NounPhrase) -> bool:
    return np.noun is None or bool(np.noun.classes & (PERSONS | {"animal", "baby"}))


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


COMPARABLE = (
    "vehicle",
    "furniture",
    "building",
    "text",
    "fruit",
    "prof",
    "device",
    "instrument",
    "food",
    "film",
    "town",
    "clothing",
    "green",
    "room",
)


def comparison(scene: Scene) -> Result:
    """The horse is bigger than the dog."""
    adjective = scene.dice.pick([a for a in scene.lexicon.adjectives if a.gradable])
    group = frozenset({scene.dice.pick(COMPARABLE)})
    first = scene.common(group, rich=False, plural=0)
    if first.noun is None or not adjective.modifies(first.noun):
        raise NoFit
    alike = [
        n
        for n in scene.lexicon.nouns_of(group)
        if adjective.modifies(n)
        and "anyroom" not in n.classes
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
    scene.enrich(ground, 0.25)
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
    determiner = A if number == "sg" else scene.dice.pick((*NUMERALS, MANY))
    if negated:
        determiner = NO
    what = NounPhrase(noun, number, determiner=determiner)
    if not negated:
        scene.enrich(what, 0.7)
    where = NounPhrase(
        scene.noun(frozenset({"town", "island"})), determiner=scene.dice.pick((THIS, THE, THIS))
    )
    use = place_use(where)
    ground = PrepPhrase(use.english_at, use.german_at, "dat", where, "place")
    if scene.dice.chance(0.3):
        ground = scene.city()
    clause = Clause(what, existential=True, copula_german="geben", adjuncts=[ground])
    return clause, "main", "."
