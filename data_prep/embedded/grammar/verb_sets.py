"""Verbs that fit one kind of scene, and the clauses that several constructions share."""

from __future__ import annotations

from data_prep.embedded.grammar.clauses import simple_clause
from data_prep.embedded.grammar.plan import Plan
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.lexicon import Verb
from data_prep.embedded.syntax.nodes import (
    Clause,
    NounPhrase,
)

# Nouns that are asked for by who.
ANIMATE = frozenset(
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
PEOPLE = frozenset({"person"})
EFFORT = frozenset({
    "cook", "bake", "clean", "tidy_up", "tidy", "wash", "work", "swim", "dance", "read", "learn",
    "go", "visit", "drive", "repair", "help", "translate", "write", "prepare", "water", "feed",
})  # fmt: skip
OUTDOORS = frozenset({"ride", "swim", "climb", "water", "go", "wait"})
RAINY = frozenset({"read", "cook", "bake", "listen", "sleep"})
WORK = frozenset(
    {
        "work",
        "cook",
        "clean",
        "tidy",
        "wash",
        "learn",
        "write",
        "repair",
        "translate",
        "bake",
        "prepare",
        "correct",
        "water",
    }
)
LEISURE = frozenset({"sleep", "rest", "dance", "laugh", "play", "sing", "smile", "watch", "listen"})
FINE_WEATHER = frozenset({"go", "swim", "work", "water", "play", "wash", "travel"})

DEPARTURES = frozenset({"go", "drive", "fly", "travel"})

# What one goes there for.
ERRANDS = {
    "supermarket": {"buy"},
    "market": {"buy"},
    "shop": {"buy", "choose"},
    "bakery": {"buy"},
    "library": {"read", "write", "translate"},
    "cafe": {"drink"},
    "restaurant": {"eat", "drink"},
    "station": {"pick"},
    "airport": {"pick"},
    "university": {"learn"},
    "school": {"learn", "pick"},
    "park": {"rest"},
    "garden": {"rest", "water", "plant"},
    "beach": {"rest"},
    "hospital": {"visit"},
    "office": {"work"},
    "factory": {"work"},
    "farm": {"work", "feed", "help"},
}

# Acts of one sitting, in an order that makes sense.
FIRST_ACTS = frozenset(
    {
        "open",
        "close",
        "turn",
        "put",
        "take",
        "pack",
        "eat",
        "drink",
        "read",
        "write",
        "wash",
        "buy",
        "thank",
        "greet",
        "call",
        "hug",
        "get",
        "tidy",
        "feed",
    }
)
SECOND_ACTS = frozenset(
    {
        "go",
        "read",
        "cook",
        "sleep",
        "rest",
        "drive",
        "play",
        "drink",
        "learn",
        "work",
        "wait",
    }
)


def verbs_named(scene: Scene, names: frozenset[str], letter: str) -> list[Verb]:
    return [
        v
        for v in scene.lexicon.verbs
        if v.english in names and letter in v.aspect and v.subjects & {"person", "adult"}
    ]


def full_subject(scene: Scene, verb: Verb) -> NounPhrase:
    """Not a pronoun: nothing before it says whom it means."""
    subject = scene.subject(verb.subjects, rich=False)
    if subject.is_pronoun and subject.person != 1:
        raise NoFit
    return subject


def ongoing(scene: Scene, tense: str, names: frozenset[str] | None = None) -> Clause:
    verb = scene.dice.pick(
        [
            v
            for v in scene.lexicon.verbs
            if "g" in v.aspect
            and v.english != "wear"
            and (names is None or v.english in names)
            and not any(s.role == "dir" for s in v.slots)
        ]
    )
    subject = full_subject(scene, verb)
    clause = simple_clause(scene, Plan(tenses=("progressive",), adverbials=False), verb, subject)
    clause.tense = tense
    return clause
