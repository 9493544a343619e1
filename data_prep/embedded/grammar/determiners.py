"""Determiners, the persons that possessives stand for, and classes of nouns that matter to both."""

from __future__ import annotations

from data_prep.embedded.syntax.nodes import Determiner

THE = Determiner("the", "der")
A = Determiner("a", "ein", definite=False)
BARE_PROFESSION = Determiner("a", "", definite=False)
#: "play the piano": Klavier spielen.
THE_BARE = Determiner("the", "", definite=False)
THIS = Determiner("this", "dies")
THESE = Determiner("these", "dies", lemma="this")
EVERY = Determiner("every", "jed")
ALL = Determiner("all", "all")
MANY = Determiner("many", "viel", upos="ADJ", definite=False)
SOME = Determiner("some", "einig", definite=False)
NUMERALS = tuple(
    Determiner(english, german, upos="NUM", definite=False)
    for english, german in (("two", "zwei"), ("three", "drei"), ("four", "vier"), ("five", "fünf"))
)
NO = Determiner("no", "kein", definite=False)
WHICH = Determiner("which", "welch")
POSSESSIVES = {
    (1, "sg", ""): Determiner("my", "mein", upos="PRON"),
    (2, "sg", ""): Determiner("your", "dein", upos="PRON"),
    (3, "sg", "m"): Determiner("his", "sein", upos="PRON"),
    (3, "sg", "f"): Determiner("her", "ihr", upos="PRON"),
    (1, "pl", ""): Determiner("our", "unser", upos="PRON"),
    (3, "pl", ""): Determiner("their", "ihr", upos="PRON"),
}
SPEAKERS = (
    (1, "sg", ""),
    (2, "sg", ""),
    (3, "sg", "m"),
    (3, "sg", "f"),
    (1, "pl", ""),
    (3, "pl", ""),
)

# What one says belongs to somebody, with a genitive.
POSSESSED = frozenset(
    {
        "ownable",
        "home",
        "garden",
        "ownthing",
        "pet",
        "image",
        "letter",
        "book",
        "question",
        "answer",
        "mistake",
        "coat",
        "instrument",
    }
)
PERSONS = frozenset({"person", "adult", "kid", "royal"})
