"""German verbal inflection: finite forms, participles, zu-infinitives, imperatives.

Forms are built from principal parts: third person singular present, preterite, past participle.
Weak verbs need none. A separable prefix is left to the syntax, which strands it in main clauses.
"""

from __future__ import annotations

import re

from data_prep.embedded.lexicon import Verb

SUPPLETIVE = {
    "sein": {
        "present": ("bin", "bist", "ist", "sind", "seid", "sind"),
        "past": ("war", "warst", "war", "waren", "wart", "waren"),
    },
    "haben": {
        "present": ("habe", "hast", "hat", "haben", "habt", "haben"),
        "past": ("hatte", "hattest", "hatte", "hatten", "hattet", "hatten"),
    },
    "werden": {
        "present": ("werde", "wirst", "wird", "werden", "werdet", "werden"),
        "past": ("wurde", "wurdest", "wurde", "wurden", "wurdet", "wurden"),
    },
    "wissen": {
        "present": ("weiß", "weißt", "weiß", "wissen", "wisst", "wissen"),
        "past": ("wusste", "wusstest", "wusste", "wussten", "wusstet", "wussten"),
    },
    "möchte": {"present": ("möchte", "möchtest", "möchte", "möchten", "möchtet", "möchten")},
    "sollte": {"present": ("sollte", "solltest", "sollte", "sollten", "solltet", "sollten")},
}
MODALS = {  # singular stem, infinitive, preterite
    "können": ("kann", "konnte"),
    "müssen": ("muss", "musste"),
    "wollen": ("will", "wollte"),
    "dürfen": ("darf", "durfte"),
    "mögen": ("mag", "mochte"),
}
INSEPARABLE = ("be", "emp", "ent", "er", "ge", "ver", "zer")
# Verbs in be-, er-, ge-, ver- or über- without the participle's ge-; "geben" or "gehen" have it.
_TRUE_GE = {"geben", "gehen", "gießen", "beten"}


def _index(person: int, number: str) -> int:
    return person - 1 + (3 if number == "pl" else 0)


def _stem(infinitive: str) -> str:
    return infinitive.removesuffix("en") if infinitive.endswith("en") else infinitive[:-1]


def _needs_e(stem: str) -> bool:
    """Linking -e- before -st, -t, -te: arbeit-e-t, öffn-e-t, zeichn-e-t (lern-t, wohn-t)."""
    return stem.endswith(("d", "t")) or bool(re.search(r"(?:ch|[^aeiouäöürlhmn])[mn]$", stem))


def finite(verb: Verb, tense: str, person: int, number: str) -> str:
    strong = verb.strong
    return finite_form(verb.german, strong[:2] if strong else None, tense, person, number)


def finite_form(
    infinitive: str, parts: tuple[str, ...] | None, tense: str, person: int, number: str
) -> str:
    """Finite form without prefix; ``parts`` are 3sg present and preterite, None if weak."""
    if infinitive in SUPPLETIVE:
        return SUPPLETIVE[infinitive][tense][_index(person, number)]
    if infinitive in MODALS:
        return _modal(infinitive, tense, person, number)
    if tense == "past":
        past = parts[1] if parts else _weak_past(infinitive)
        return _past(past, person, number)
    return _present(infinitive, parts, person, number)


def _modal(infinitive: str, tense: str, person: int, number: str) -> str:
    singular, past = MODALS[infinitive]
    if tense == "past":
        return _past(past, person, number)
    if number == "pl":
        return infinitive if person != 2 else _stem(infinitive) + "t"
    if person != 2:
        return singular
    return singular + ("t" if singular.endswith("s") else "st")


def _present(infinitive: str, parts: tuple[str, ...] | None, person: int, number: str) -> str:
    stem = _stem(infinitive)
    if number == "pl":
        return infinitive if person != 2 else _with_t(stem)
    if person == 1:
        return _first_person(infinitive, stem)
    third = parts[0] if parts else _with_t(stem)
    return third if person == 3 else _second_person(stem, third)


def _first_person(infinitive: str, stem: str) -> str:
    """lese; lächle (-eln drops its e)."""
    return stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"


def _with_t(stem: str) -> str:
    return stem + ("et" if _needs_e(stem) else "t")


def _second_person(stem: str, third: str) -> str:
    """du lernst, arbeitest, liest, lädst, trittst: from the third person, which shows the vowel."""
    if stem.endswith("t") and not third.endswith("et"):
        return third + "st"
    base = third.removesuffix("t")
    return base + ("t" if base.endswith(("s", "ß", "x", "z")) else "st")


def _weak_past(infinitive: str) -> str:
    stem = _stem(infinitive)
    return stem + ("ete" if _needs_e(stem) else "te")


def _past(past: str, person: int, number: str) -> str:
    weak = past.endswith("te")
    if number == "pl":
        ending = "t" if person == 2 else "n" if weak else "en"
        return past + ending
    if person != 2:
        return past
    if weak:
        return past + "st"
    return past + ("est" if past.endswith(("s", "ß", "t", "d", "z")) else "st")


def participle(verb: Verb) -> str:
    """With its separable prefix: gelesen, verkauft, repariert, aufgemacht, vorbereitet."""
    if verb.strong:
        return verb.prefix + verb.strong[2]
    stem = _stem(verb.german)
    body = _with_t(stem)
    return verb.prefix + (body if _lacks_ge(verb.german) else "ge" + body)


def _lacks_ge(infinitive: str) -> bool:
    if infinitive.endswith("ieren") or infinitive == "interviewen":
        return True
    return infinitive.startswith((*INSEPARABLE, "umarm", "übersetz", "untersuch")) and (
        infinitive not in _TRUE_GE
    )


def infinitive(verb: Verb) -> str:
    return verb.prefix + verb.german


def zu_infinitive(verb: Verb) -> tuple[str, ...]:
    """("zu", "lesen"); one word where the prefix is separable: ("aufzumachen",)."""
    return (verb.prefix + "zu" + verb.german,) if verb.prefix else ("zu", verb.german)


def imperative(verb: Verb) -> str:
    """Singular (du): lies, gib, warte, öffne, füttere. Verbs that raise e to i(e) keep the i."""
    stem = _stem(verb.german)
    if verb.strong and _raises_e(stem, verb.strong[0]):
        return verb.strong[0].removesuffix("t")
    return stem + "e" if _needs_e(stem) or stem.endswith(("er", "el")) else stem


def _raises_e(stem: str, third: str) -> bool:
    vowels = re.compile(r"[aeiouäöü]+")
    before, after = vowels.findall(stem)[-1], vowels.findall(third.removesuffix("t"))
    return before == "e" and after[-1] in ("i", "ie")
