"""German inflection: from a lexical entry and grammatical features to a word form.

Verb forms are built from principal parts (third person singular present, preterite, participle);
weak verbs need none. A separable prefix is left to the syntax, which strands it in main clauses.
"""

from __future__ import annotations

import re

from data_prep.embedded.lexicon import DETERMINERS, IRREGULAR, POSSESSIVES, PRONOUNS, Noun, Verb
from data_prep.embedded.lexicon import read as read_table

# --- determiners, adjectives, nouns, pronouns ----------------------------------------------------

_ENDINGS = {(row["class"], row["gender"]): row for row in read_table("declension.txt")}
_CLASS_OF = {d.german: d.declension for d in (*DETERMINERS.values(), *POSSESSIVES.values())}
_ADJECTIVE_CLASS = {"article": "weak", "der": "weak", "ein": "mixed"}
# Stems that change before an ending.
_ADJECTIVE_STEMS = {"teuer": "teur", "dunkel": "dunkl", "hoch": "hoh"}
_VOWELS = "aeiouäöüyAEIOUÄÖÜ"

CONTRACTIONS = {
    ("in", "dem"): "im", ("an", "dem"): "am", ("zu", "dem"): "zum", ("zu", "der"): "zur",
    ("in", "das"): "ins", ("an", "das"): "ans", ("bei", "dem"): "beim", ("von", "dem"): "vom",
}  # fmt: skip


def _ending(declension: str, gender: str, number: str, case: str) -> str:
    return _ENDINGS[declension, "pl" if number == "pl" else gender][case]


def determiner(stem: str, gender: str, number: str, case: str) -> str:
    """Inflected determiner; the article and numerals have no stem of their own."""
    declension = _CLASS_OF[stem]
    ending = _ending(declension, gender, number, case) if declension else ""
    return ending if declension == "article" else stem + ending


def adjective(lemma: str, determiner_stem: str, gender: str, number: str, case: str) -> str:
    """Attributive form after the determiner with that stem ("" for none)."""
    declension = _ADJECTIVE_CLASS.get(_CLASS_OF.get(determiner_stem, ""), "strong")
    stem = _ADJECTIVE_STEMS.get(lemma, lemma.removesuffix("e"))
    return stem + _ending(declension, gender, number, case)


def noun(entry: Noun, number: str, case: str) -> str:
    if number == "pl" or "p" in entry.flags:
        plural = entry.german if "p" in entry.flags else entry.german_plural
        return plural + "n" if case == "dat" and not plural.endswith(("n", "s")) else plural
    if entry.proper:
        return entry.german + "s" if case == "gen" else entry.german
    if "n" in entry.flags and case != "nom":
        return entry.german_plural  # -(e)n throughout: des Jungen, die Jungen
    if case == "gen" and entry.gender != "f":
        return entry.genitive or _strong_genitive(entry.german)
    return entry.german


def _strong_genitive(word: str) -> str:
    """-es after sibilants and for words of one syllable that end in a stop, -s elsewhere."""
    if word.endswith(("s", "ß", "x", "z", "tsch")):
        return word + "es"
    stop = word.endswith(("d", "t", "g", "b", "ch", "sch", "nn"))
    return word + ("es" if stop and len(re.findall(f"[{_VOWELS}]+", word)) == 1 else "s")


def pronoun(person: int, number: str, gender: str, case: str) -> str:
    """``case`` may be "reflexive", too."""
    gender = gender if (person, number) == (3, "sg") else ""
    return PRONOUNS[person, number, gender][case]


def relative_pronoun(gender: str, number: str, case: str) -> str:
    return "denen" if (number, case) == ("pl", "dat") else _ending("article", gender, number, case)


# --- verbs ---------------------------------------------------------------------------------------

_INSEPARABLE = ("be", "emp", "ent", "er", "ge", "ver", "zer", "umarm", "übersetz", "untersuch")
_TAKES_GE = {"geben", "gehen", "gießen", "beten"}  # for their stem only looks like a prefix


def _stem(infinitive: str) -> str:
    return infinitive.removesuffix("en") if infinitive.endswith("en") else infinitive[:-1]


def _needs_e(stem: str) -> bool:
    """Linking -e- before -st, -t, -te: arbeit-e-t, öffn-e-t, zeichn-e-t (lern-t, wohn-t)."""
    return stem.endswith(("d", "t")) or bool(re.search(r"(?:ch|[^aeiouäöürlhmn])[mn]$", stem))


def _with_t(stem: str) -> str:
    return stem + ("et" if _needs_e(stem) else "t")


def finite(
    infinitive: str, parts: tuple[str, ...] | None, tense: str, person: int, number: str
) -> str:
    """Finite form without prefix; ``parts`` are the principal parts, None if weak.

    There is no second person plural.
    """
    irregular = IRREGULAR.get(("de", infinitive))
    if tense == "past":
        past = irregular["past"] if irregular else parts[1] if parts else ""
        return _past(past or _with_t(_stem(infinitive)) + "e", person, number)
    if irregular:
        return irregular["pl" if number == "pl" else f"{person}sg"]
    stem = _stem(infinitive)
    third = parts[0] if parts else _with_t(stem)
    if number == "pl":
        return infinitive
    if person == 1:  # lese; lächle (-eln drops its e)
        return stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"
    return third if person == 3 else _second_person(stem, third)


def _second_person(stem: str, third: str) -> str:
    """du lernst, arbeitest, liest, lädst, trittst: from the third person, which shows the vowel."""
    if stem.endswith("t") and not third.endswith("et"):
        return third + "st"
    base = third.removesuffix("t")
    return base + ("t" if base.endswith(("s", "ß", "x", "z")) else "st")


def _past(past: str, person: int, number: str) -> str:
    weak = past.endswith("te")
    if number == "pl":
        return past + ("n" if weak else "en")
    if person != 2:
        return past
    return past + ("est" if past.endswith(("s", "ß", "t", "d", "z")) else "st")


def participle(verb: Verb) -> str:
    """With its separable prefix: gelesen, verkauft, repariert, aufgemacht, vorbereitet."""
    if verb.strong:
        return verb.prefix + verb.strong[2]
    foreign = verb.german.endswith("ieren") or verb.german == "interviewen"
    without_ge = foreign or (verb.german.startswith(_INSEPARABLE) and verb.german not in _TAKES_GE)
    return verb.prefix + ("" if without_ge else "ge") + _with_t(_stem(verb.german))


def infinitive(verb: Verb) -> str:
    return verb.prefix + verb.german


def zu_infinitive(verb: Verb) -> tuple[str, ...]:
    """("zu", "lesen"); one word where the prefix is separable: ("aufzumachen",)."""
    return (verb.prefix + "zu" + verb.german,) if verb.prefix else ("zu", verb.german)


def imperative(verb: Verb) -> str:
    """Singular (du): lies, gib, warte, öffne, füttere. Verbs that raise e to i(e) keep the i."""
    stem = _stem(verb.german)
    if verb.strong:
        before, after = (re.findall("[aeiouäöü]+", s) for s in (stem, verb.strong[0][:-1]))
        if before[-1] == "e" and after[-1] in ("i", "ie"):
            return verb.strong[0].removesuffix("t")
    return stem + "e" if _needs_e(stem) or stem.endswith(("er", "el")) else stem
