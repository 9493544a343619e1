"""Inflection tables of the embedded corpus, against forms known right by hand."""

from __future__ import annotations

import pytest

from data_prep.embedded import english_forms, german_forms, lexicon


@pytest.mark.parametrize(
    ("stem", "adjective", "noun", "number", "case", "phrase"),
    [
        # weak, after der-words
        ("der", "alt", "man", "sg", "nom", "der alte Mann"),
        ("der", "alt", "man", "sg", "gen", "des alten Mannes"),
        ("der", "jung", "woman", "sg", "dat", "der jungen Frau"),
        ("dies", "klein", "child", "sg", "acc", "dieses kleine Kind"),
        ("dies", "klein", "child", "pl", "dat", "diesen kleinen Kindern"),
        ("welch", "klug", "student", "sg", "acc", "welchen klugen Studenten"),
        # mixed, after ein-words
        ("ein", "alt", "man", "sg", "nom", "ein alter Mann"),
        ("ein", "neu", "book", "sg", "acc", "ein neues Buch"),
        ("kein", "gut", "idea", "sg", "dat", "keiner guten Idee"),
        ("unser", "alt", "car", "sg", "gen", "unseres alten Autos"),
        ("mein", "alt", "boy", "sg", "dat", "meinem alten Jungen"),
        ("ihr", "klein", "bird", "pl", "acc", "ihre kleinen Vögel"),
        # strong
        ("", "kalt", "milk", "sg", "dat", "kalter Milch"),
        ("", "kalt", "water", "sg", "acc", "kaltes Wasser"),
        ("zwei", "rot", "apple", "pl", "dat", "zwei roten Äpfeln"),
        ("viel", "teuer", "house", "pl", "nom", "viele teure Häuser"),
        ("einig", "dunkel", "room", "pl", "gen", "einiger dunkler Zimmer"),
    ],
)
def test_declension(
    stem: str, adjective: str, noun: str, number: str, case: str, phrase: str
) -> None:
    entry = lexicon.noun(noun)
    words = [
        german_forms.determiner(stem, entry.gender, number, case) if stem else "",
        german_forms.adjective(adjective, stem, entry.gender, number, case),
        german_forms.noun(entry, number, case),
    ]
    assert " ".join(filter(None, words)) == phrase


def test_genitive_and_dative_plural() -> None:
    genitives = {
        "teacher": "Lehrers", "child": "Kindes", "house": "Hauses", "bus": "Busses",
        "student": "Studenten", "bear": "Bären", "woman": "Frau", "cook": "Kochs",
        "secret": "Geheimnisses", "Anna": "Annas",
    }  # fmt: skip
    datives = {"child": "Kindern", "car": "Autos", "woman": "Frauen", "parents": "Eltern"}
    for number, case, forms in (("sg", "gen", genitives), ("pl", "dat", datives)):
        found = {word: german_forms.noun(lexicon.noun(word), number, case) for word in forms}
        assert found == forms


def test_relative_pronouns() -> None:
    table = {
        ("m", "sg"): ("der", "den", "dem"),
        ("f", "sg"): ("die", "die", "der"),
        ("n", "sg"): ("das", "das", "dem"),
        ("m", "pl"): ("die", "die", "denen"),
    }
    for (gender, number), expected in table.items():
        cases = ("nom", "acc", "dat")
        assert tuple(german_forms.relative_pronoun(gender, number, c) for c in cases) == expected


PRESENT = {  # ich, du, er, wir
    ("read", "lesen"): ("lese", "liest", "liest", "lesen"),
    ("work", "arbeiten"): ("arbeite", "arbeitest", "arbeitet", "arbeiten"),
    ("open", "öffnen"): ("öffne", "öffnest", "öffnet", "öffnen"),
    ("draw", "zeichnen"): ("zeichne", "zeichnest", "zeichnet", "zeichnen"),
    ("live", "wohnen"): ("wohne", "wohnst", "wohnt", "wohnen"),
    ("smile", "lächeln"): ("lächle", "lächelst", "lächelt", "lächeln"),
    ("invite", "laden"): ("lade", "lädst", "lädt", "laden"),
    ("eat", "essen"): ("esse", "isst", "isst", "essen"),
    ("drive", "fahren"): ("fahre", "fährst", "fährt", "fahren"),
    ("take", "nehmen"): ("nehme", "nimmst", "nimmt", "nehmen"),
    ("close", "schließen"): ("schließe", "schließt", "schließt", "schließen"),
    ("dance", "tanzen"): ("tanze", "tanzt", "tanzt", "tanzen"),
    ("like", "mögen"): ("mag", "magst", "mag", "mögen"),
    ("know", "wissen"): ("weiß", "weißt", "weiß", "wissen"),
    ("have", "haben"): ("habe", "hast", "hat", "haben"),
    ("feed", "füttern"): ("füttere", "fütterst", "füttert", "füttern"),
}
PERSONS = ((1, "sg"), (2, "sg"), (3, "sg"), (1, "pl"))


def finite_forms(verb: str, parts: tuple[str, ...] | None, tense: str) -> tuple[str, ...]:
    return tuple(german_forms.finite(verb, parts, tense, *person) for person in PERSONS)


@pytest.mark.parametrize("names", PRESENT)
def test_present(names: tuple[str, str]) -> None:
    verb = lexicon.verb(*names)
    assert finite_forms(verb.german, verb.strong, "present") == PRESENT[names]


@pytest.mark.parametrize(
    ("names", "past", "participle"),
    [
        (("read", "lesen"), ("las", "lasest", "las", "lasen"), "gelesen"),
        (("wait", "warten"), ("wartete", "wartetest", "wartete", "warteten"), "gewartet"),
        (("bring", "bringen"), ("brachte", "brachtest", "brachte", "brachten"), "gebracht"),
        (("buy", "kaufen"), ("kaufte", "kauftest", "kaufte", "kauften"), "gekauft"),
        (("go", "gehen"), ("ging", "gingst", "ging", "gingen"), "gegangen"),
        (("repair", "reparieren"), ("reparierte", "repariertest", "reparierte", "reparierten"),
         "repariert"),
        (("sell", "verkaufen"), ("verkaufte", "verkauftest", "verkaufte", "verkauften"),
         "verkauft"),
        (("water", "gießen"), ("goss", "gossest", "goss", "gossen"), "gegossen"),
        (("belong", "gehören"), ("gehörte", "gehörtest", "gehörte", "gehörten"), "gehört"),
        (("hug", "umarmen"), ("umarmte", "umarmtest", "umarmte", "umarmten"), "umarmt"),
    ],
)  # fmt: skip
def test_past_and_participle(
    names: tuple[str, str], past: tuple[str, ...], participle: str
) -> None:
    verb = lexicon.verb(*names)
    assert (
        tuple(german_forms.finite(verb.german, verb.strong, "past", p, n) for p, n in PERSONS)
        == past
    )
    assert german_forms.participle(verb) == participle


@pytest.mark.parametrize(
    ("names", "prefix", "participle", "zu"),
    [
        (("turn", "schalten"), "ein", "eingeschaltet", "einzuschalten"),
        (("get", "stehen"), "auf", "aufgestanden", "aufzustehen"),
        (("call", "rufen"), "an", "angerufen", "anzurufen"),
        (("prepare", "bereiten"), "vor", "vorbereitet", "vorzubereiten"),
        (("come", "kommen"), "zurück", "zurückgekommen", "zurückzukommen"),
    ],
)
def test_separable_verbs(names: tuple[str, str], prefix: str, participle: str, zu: str) -> None:
    verb = next(v for v in lexicon.VERBS if (v.english, v.german, v.prefix) == (*names, prefix))
    assert german_forms.participle(verb) == participle
    assert german_forms.zu_infinitive(verb) == (zu,)
    assert german_forms.infinitive(verb) == prefix + names[1]


def test_imperative() -> None:
    forms = {
        ("read", "lesen"): "lies", ("open", "öffnen"): "öffne", ("wait", "warten"): "warte",
        ("forget", "vergessen"): "vergiss", ("close", "schließen"): "schließ",
        ("feed", "füttern"): "füttere", ("look", "sehen"): "sieh", ("invite", "laden"): "lade",
    }  # fmt: skip
    assert {key: german_forms.imperative(lexicon.verb(*key)) for key in forms} == forms


@pytest.mark.parametrize(
    ("modal", "present"),
    [
        ("müssen", ("muss", "musst", "muss", "müssen")),
        ("können", ("kann", "kannst", "kann", "können")),
        ("wollen", ("will", "willst", "will", "wollen")),
        ("dürfen", ("darf", "darfst", "darf", "dürfen")),
        ("möchte", ("möchte", "möchtest", "möchte", "möchten")),
    ],
)
def test_modals(modal: str, present: tuple[str, ...]) -> None:
    assert finite_forms(modal, None, "present") == present


def test_motion_verbs_take_sein() -> None:
    for names in (("go", "gehen"), ("fly", "fliegen"), ("stay", "bleiben"), ("get", "stehen")):
        assert lexicon.verb(*names).auxiliary == "sein"
    assert lexicon.verb("read", "lesen").auxiliary == "haben"


def test_english_forms() -> None:
    assert [lexicon.english_past(v) for v in ("stop", "carry", "play", "open", "love")] == [
        "stopped", "carried", "played", "opened", "loved",
    ]  # fmt: skip
    verbs = ("swim", "lie", "write", "travel", "forget")
    assert [english_forms.present_participle(v) for v in verbs] == [
        "swimming", "lying", "writing", "travelling", "forgetting",
    ]  # fmt: skip
    regular = ("watch", "carry", "play", "kiss", "church", "boy")
    assert [lexicon.with_s(word) for word in regular] == [
        "watches", "carries", "plays", "kisses", "churches", "boys",
    ]  # fmt: skip
    words = ("apple", "university", "honest", "house")
    assert [english_forms.indefinite_article(w) for w in words] == ["an", "a", "an", "a"]


@pytest.mark.parametrize(
    ("verb", "tense", "forms"),  # I, you, he, they
    [
        ("be", "present", ("am", "are", "is", "are")),
        ("be", "past", ("was", "were", "was", "were")),
        ("have", "present", ("have", "have", "has", "have")),
        ("must", "present", ("must",) * 4),
        ("want", "present", ("want", "want", "wants", "want")),
    ],
)
def test_english_agreement(verb: str, tense: str, forms: tuple[str, ...]) -> None:
    persons = ((1, "sg"), (2, "sg"), (3, "sg"), (3, "pl"))
    assert tuple(english_forms.finite(verb, "", tense, p, n) for p, n in persons) == forms
