"""German nominal inflection: articles, determiners, adjectives, nouns, pronouns.

Adjectives follow the determiner: weak after der-words, strong after none (or after words such as
"zwei" and "viele" that carry no gender), mixed after ein-words, which lack an ending in the
nominative masculine and the nominative and accusative neuter.
"""

from __future__ import annotations

from data_prep.embedded.lexicon import Noun

CASE_ORDER = ("nom", "acc", "dat", "gen")

# Columns: nominative, accusative, dative, genitive.
DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "pl": ("die", "die", "den", "der"),
}
DER_WORD_ENDINGS = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
EIN_WORD_ENDINGS = {
    "m": ("", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("", "", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
WEAK = {
    "m": ("e", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("e", "e", "en", "en"),
    "pl": ("en", "en", "en", "en"),
}
STRONG = {
    "m": ("er", "en", "em", "en"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "en"),
    "pl": ("e", "e", "en", "er"),
}
MIXED = {
    "m": ("er", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("es", "es", "en", "en"),
    "pl": ("en", "en", "en", "en"),
}

DER_WORDS = {"dies", "jed", "welch", "all"}
EIN_WORDS = {"ein", "kein", "mein", "dein", "sein", "ihr", "unser"}
STRONG_PLURALS = {"viel", "einig"}

PERSONAL = {  # (person, number, gender): nominative, accusative, dative
    (1, "sg", ""): ("ich", "mich", "mir"),
    (2, "sg", ""): ("du", "dich", "dir"),
    (3, "sg", "m"): ("er", "ihn", "ihm"),
    (3, "sg", "f"): ("sie", "sie", "ihr"),
    (3, "sg", "n"): ("es", "es", "ihm"),
    (1, "pl", ""): ("wir", "uns", "uns"),
    (3, "pl", ""): ("sie", "sie", "ihnen"),
}
REFLEXIVE = {(1, "sg"): "mich", (2, "sg"): "dich", (3, "sg"): "sich", (1, "pl"): "uns"}
WHO = {"nom": "wer", "acc": "wen", "dat": "wem"}
RELATIVE_DATIVE_PLURAL = "denen"

# Stems that change before an ending: teuer, dunkel, hoch.
_ADJECTIVE_STEMS = {"teuer": "teur", "dunkel": "dunkl", "hoch": "hoh", "teurer": "teurer"}

CONTRACTIONS = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
    ("bei", "dem"): "beim",
    ("von", "dem"): "vom",
}


def column(gender: str, number: str) -> str:
    return "pl" if number == "pl" else gender


def ending(table: dict[str, tuple[str, str, str, str]], key: str, case: str) -> str:
    return table[key][CASE_ORDER.index(case)]


def determiner(stem: str, gender: str, number: str, case: str) -> str:
    """Inflected determiner; ``stem`` is "der", a der- or ein-word stem, or a numeral."""
    key = column(gender, number)
    if stem == "der":
        return ending(DEFINITE, key, case)
    if stem in DER_WORDS:
        return stem + ending(DER_WORD_ENDINGS, key, case)
    if stem in EIN_WORDS:
        return stem + ending(EIN_WORD_ENDINGS, key, case)
    if stem in STRONG_PLURALS:
        return stem + ending(STRONG, key, case)
    return stem


def adjective(lemma: str, determiner_stem: str, gender: str, number: str, case: str) -> str:
    """Attributive form after the determiner with that stem ("" for none)."""
    key = column(gender, number)
    if determiner_stem == "der" or determiner_stem in DER_WORDS:
        table = WEAK
    elif determiner_stem in EIN_WORDS:
        table = MIXED
    else:
        table = STRONG
    stem = _ADJECTIVE_STEMS.get(lemma, lemma.removesuffix("e"))
    return stem + ending(table, key, case)


def noun(entry: Noun, number: str, case: str) -> str:
    if number == "pl" or entry.plural_only:
        plural = entry.german if entry.plural_only else entry.german_plural
        return plural + "n" if case == "dat" and not plural.endswith(("n", "s")) else plural
    if entry.proper:
        return entry.german + "s" if case == "gen" else entry.german
    if entry.weak and case != "nom":
        return entry.german_plural  # -(e)n throughout: des Jungen, die Jungen
    if case == "gen" and entry.gender != "f":
        return entry.genitive or _strong_genitive(entry.german)
    return entry.german


def _strong_genitive(word: str) -> str:
    """-es after sibilants and for short words that end in a stop, -s elsewhere."""
    if word.endswith(("s", "ß", "x", "z", "tsch")):
        return word + "es"
    syllables = sum(
        a not in _VOWELS and b in _VOWELS for a, b in zip(" " + word, word, strict=False)
    )
    stop = word.endswith(("d", "t", "g", "b", "ch", "sch", "nn"))
    return word + ("es" if syllables == 1 and stop else "s")


_VOWELS = "aeiouäöüyAEIOUÄÖÜ"


def personal_pronoun(person: int, number: str, gender: str, case: str) -> str:
    return PERSONAL[person, number, gender][CASE_ORDER.index(case)]


def reflexive(person: int, number: str) -> str:
    return REFLEXIVE.get((person, number), "sich")


def relative_pronoun(gender: str, number: str, case: str) -> str:
    if number == "pl" and case == "dat":
        return RELATIVE_DATIVE_PLURAL
    return ending(DEFINITE, column(gender, number), case)
