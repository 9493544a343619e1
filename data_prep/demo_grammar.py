"""The grammar of the demo corpus: sentences in English and German.

English decides the German side, so that a model can learn the rules: gender and case of noun
phrases, verb-second and verb-final clauses, separable prefixes, two-part tenses, inversion.

    clause = subject, verb with tense, objects, adverb, negation
    German main clause    front | finite verb | middle field | rest of the verb, prefix
    German subordinate    conjunction | middle field | rest of the verb, finite verb
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

# english[/plural] german gender german_plural kind; w after the gender: weak (den Jungen)
_NOUNS = """
man/men Mann m Männer person; woman/women Frau f Frauen person; child/children Kind n Kinder person
boy Junge mw Jungen person; teacher Lehrer m Lehrer person; guest Gast m Gäste person
doctor Arzt m Ärzte person; student Student mw Studenten person; farmer Bauer mw Bauern person
friend Freund m Freunde person; aunt Tante f Tanten person; sister Schwester f Schwestern person
brother Bruder m Brüder person; girl Mädchen n Mädchen person
dog Hund m Hunde animal; cat Katze f Katzen animal; horse Pferd n Pferde animal
bird Vogel m Vögel animal; cow Kuh f Kühe animal; mouse/mice Maus f Mäuse animal
apple Apfel m Äpfel food; cake Kuchen m Kuchen food; egg Ei n Eier food; soup Suppe f Suppen food
book Buch n Bücher text; letter Brief m Briefe text; newspaper Zeitung f Zeitungen text
poem Gedicht n Gedichte text; report Bericht m Berichte text; note Notiz f Notizen text
door Tür f Türen thing; window Fenster n Fenster thing; table Tisch m Tische thing
chair Stuhl m Stühle thing; lamp Lampe f Lampen thing; key Schlüssel m Schlüssel thing
picture Bild n Bilder thing; bag Tasche f Taschen thing; coat Mantel m Mäntel thing
car Auto n Autos thing; bicycle Fahrrad n Fahrräder thing; ship Schiff n Schiffe thing
garden Garten m Gärten place; kitchen Küche f Küchen place; school Schule f Schulen place
house Haus n Häuser place; town Stadt f Städte place; village Dorf n Dörfer place
"""
# english past participle, german 3rd_person past participle prefix auxiliary, subject, objects
# -: regular, or none; an object is case:kinds, or english>german.case:kinds with prepositions
_VERBS = """
see saw seen, sehen sieht sah gesehen - haben, being, acc:being,thing,place
buy bought bought, kaufen - - - - haben, person, acc:food,text,thing
read read read, lesen liest las gelesen - haben, person, acc:text
write wrote written, schreiben schreibt schrieb geschrieben - haben, person, acc:text
eat ate eaten, essen isst aß gegessen - haben, being, acc:food
find found found, finden findet fand gefunden - haben, being, acc:thing,food,animal
take took taken, nehmen nimmt nahm genommen - haben, person, acc:thing,text,food
visit - -, besuchen besucht besuchte besucht - haben, person, acc:person,place
repair - -, reparieren repariert reparierte repariert - haben, person, acc:thing
open - -, machen - - - auf haben, person, acc:door,window,bag
fetch - -, holen - - - ab haben, person, acc:person,thing
help - -, helfen hilft half geholfen - haben, person, dat:being
follow - -, folgen - - - - sein, being, dat:being
give gave given, geben gibt gab gegeben - haben, person, dat:person acc:thing,food,text
show showed shown, zeigen - - - - haben, person, dat:person acc:thing,text,place
bring brought brought, bringen bringt brachte gebracht - haben, person, dat:person acc:thing,text
wait - -, warten wartet wartete gewartet - haben, being, for>auf.acc:being
play - -, spielen - - - - haben, being, with>mit.dat:being
go went gone, gehen geht ging gegangen - sein, being, into>in.acc:place
work - -, arbeiten arbeitet arbeitete gearbeitet - haben, person, in>in.dat:place
sleep slept slept, schlafen schläft schlief geschlafen - haben, being, in>in.dat:place
sing sang sung, singen singt sang gesungen - haben, person, -
arrive arrived arrived, kommen kommt kam gekommen an sein, being, -
"""
_ADJECTIVES = """old alt, young jung, small klein, big groß, new neu, beautiful schön, good gut, bad
schlecht, friendly freundlich, strange seltsam, quiet still, clever klug"""
# english, german, and its tenses
_ADVERBS = """today, heute, present future must; tomorrow, morgen, future can must
yesterday, gestern, past; last week, letzte Woche, past; every day, jeden Tag, present past
often, oft, present past; soon, bald, future must; now, jetzt, present can must"""
_LINKS = "because weil, although obwohl, when wenn, before bevor, if falls"

CASES = ("nom", "acc", "dat")
# endings by case: of der-words, of ein-words, and of adjectives after either
_STRONG = {"m": "er en em", "f": "e e er", "n": "es es em", "pl": "e e en"}
_EIN = _STRONG | {"m": "- en em", "n": "- - em"}
_WEAK = {"m": "e en en", "f": "e e en", "n": "e e en", "pl": "en en en"}
_MIXED = _WEAK | {"m": "er en en", "n": "es es en"}
_THE = {"m": "der den dem", "f": "die die der", "n": "das das dem", "pl": "die die den"}
# english, german stem, endings, adjective's endings; singular and plural
_SINGULAR = [
    ("the", "", _THE, _WEAK), ("this", "dies", _STRONG, _WEAK), ("a", "ein", _EIN, _MIXED),
    ("my", "mein", _EIN, _MIXED), ("his", "sein", _EIN, _MIXED), ("our", "unser", _EIN, _MIXED),
]  # fmt: skip
_NUMERAL = dict.fromkeys(_STRONG, "- - -")
_PLURAL = [
    ("the", "", _THE, _WEAK), ("these", "dies", _STRONG, _WEAK), ("my", "mein", _EIN, _MIXED),
    ("his", "sein", _EIN, _MIXED), ("two", "zwei", _NUMERAL, _STRONG),
    ("many", "viel", _STRONG, _STRONG),
]  # fmt: skip
_PRONOUNS = """I me 1sg ich mich mir; he him 3sg er ihn ihm; she her 3sg sie sie ihr
we us pl wir uns uns; they them pl sie sie ihnen"""
_FINITE = {  # auxiliaries: 1sg, 3sg, pl
    "have": "have has have", "haben": "habe hat haben", "sein": "bin ist sind",
    "werden": "werde wird werden", "können": "kann kann können", "müssen": "muss muss müssen",
}  # fmt: skip
_TENSES = {"present": 4, "past": 4, "perfect": 2, "future": 2, "can": 1, "must": 1}  # weights
_AUXILIARIES = {"future": ("will", "werden"), "can": ("can", "können"), "must": ("must", "müssen")}


def _entries(text: str, separator: str = ";") -> list[str]:
    return [row.strip() for row in text.replace("\n", separator).split(separator) if row.strip()]


NOUNS = [entry.split() for entry in _entries(_NOUNS)]
VERBS = [[part.split() for part in entry.split(", ")] for entry in _entries(_VERBS, "\n")]
ADJECTIVES = [entry.split() for entry in _entries(_ADJECTIVES.replace("\n", " "), ",")]
ADVERBS = [entry.split(", ") for entry in _entries(_ADVERBS)]
PRONOUNS = [entry.split() for entry in _entries(_PRONOUNS)]
LINKS = [entry.split() for entry in _entries(_LINKS, ",")]


@dataclass
class Phrase:
    """A noun phrase or pronoun: English as subject and object, German by case."""

    english: tuple[str, str]
    german: dict[str, str]
    agreement: str  # 1sg, 3sg or pl
    pronoun: bool = False


@dataclass
class Clause:
    """A subject, a verb of _VERBS in a tense, objects with prepositions, and more."""

    subject: Phrase
    verb: list[list[str]]
    tense: str
    negated: bool = False
    objects: list[tuple[Phrase, str, str, str]] = field(default_factory=list)
    adverb: list[str] | None = None


class Grammar:
    """Draws clauses."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self._dice.random() < share

    def noun_phrase(self, kinds: Sequence[str]) -> Phrase:
        """Draw a noun phrase of one of the kinds, which may also be single nouns."""
        wide = [*kinds, "person", "animal"] if "being" in kinds else kinds
        if "person" in wide and self.chance(0.3):
            subject, other, agreement, *german = self._dice.choice(PRONOUNS)
            return Phrase((subject, other), dict(zip(CASES, german, strict=True)), agreement, True)
        nouns = [noun for noun in NOUNS if {noun[4], noun[0]} & {*wide}]
        english, german_noun, gender, german_plural, _ = self._dice.choice(nouns)
        singular, _, plural = english.partition("/")
        is_plural = self.chance(0.3)
        row = gender[0] if not is_plural else "pl"
        chosen = self._dice.choice(_PLURAL if is_plural else _SINGULAR)
        determiner, stem, endings, adjective_endings = chosen
        words = [determiner, (plural or f"{singular}s") if is_plural else singular]
        adjective = self._dice.choice(ADJECTIVES) if self.chance(0.4) else None
        if adjective:
            words.insert(1, adjective[0])
        if determiner == "a" and words[1][0] in "aeio":
            words[0] = "an"
        cases: dict[str, str] = {}
        for number, case in enumerate(CASES):
            parts = [stem + endings[row].split()[number].strip("-")]
            if adjective:
                parts.append(adjective[1] + adjective_endings[row].split()[number])
            noun = german_plural if is_plural else german_noun
            if is_plural and case == "dat" and noun[-1] not in "ns":
                noun += "n"
            elif not is_plural and gender.endswith("w") and case != "nom":
                noun = german_plural
            cases[case] = " ".join([*parts, noun])
        text = " ".join(words)
        return Phrase((text, text), cases, "pl" if is_plural else "3sg")

    def clause(self, tense: str = "", adverbs: bool = True) -> Clause:
        verb = self._dice.choice(VERBS)
        tense = tense or self._dice.choices([*_TENSES], [*_TENSES.values()])[0]
        clause = Clause(self.noun_phrase(verb[2]), verb, tense, self.chance(0.12))
        for frame in verb[3] if verb[3] != ["-"] else ():
            government, _, kinds = frame.partition(":")
            prepositions, _, case = government.rpartition(".")
            english, _, german = prepositions.partition(">")
            clause.objects.append((self.noun_phrase(kinds.split(",")), english, german, case))
        fitting = [adverb for adverb in ADVERBS if tense in adverb[2].split()]
        if adverbs and fitting and self.chance(0.4):
            clause.adverb = self._dice.choice(fitting)
        return clause

    def sentence(self) -> tuple[str, str]:
        """Draw a sentence: English and German."""
        kind = self._dice.choices(["main", "question", "link", "that"], [10, 3, 4, 2])[0]
        first = self.clause()
        if kind == "question":
            words = english(first, question=True), german(first, "question")
            return _finished(*words, "?")
        if kind == "that":
            who = self.noun_phrase(["person"])
            know = "knows" if who.agreement == "3sg" else "know"
            source = [who.english[0], know, "that", *english(first)]
            know = "wissen" if who.agreement == "pl" else "weiß"
            return _finished(source, [who.german["nom"], know, ", dass", *german(first, "final")])
        if kind == "link":
            word, wort = self._dice.choice(LINKS)
            second = self.clause(first.tense, adverbs=False)
            inner, inneres = english(second), german(second, "final")
            first.adverb = None
            if self.chance(0.4):
                source = [word, *inner, ",", *english(first)]
                return _finished(source, german(first, "main", [wort, *inneres, ","]))
            target = [*german(first, "main"), ",", wort, *inneres]
            return _finished([*english(first), word, *inner], target)
        if first.adverb and self.chance(0.4):
            front, vorn = first.adverb[:2]
            first.adverb = None
            return _finished([front, *english(first)], german(first, "main", [vorn]))
        return _finished(english(first), german(first, "main"))


def english(clause: Clause, question: bool = False) -> list[str]:
    """Return subject, verbs, objects, adverb; a question has its first auxiliary in front."""
    base, *others = clause.verb[0]
    past, participle = (f"{base}ed" if word == "-" else word for word in others)
    agreement = ("1sg", "3sg", "pl").index(clause.subject.agreement)
    third = base + ("es" if base.endswith(("ch", "go")) else "s")
    if clause.tense == "perfect":
        verbs = [_FINITE["have"].split()[agreement], participle]
    elif clause.tense in _AUXILIARIES:
        verbs = [_AUXILIARIES[clause.tense][0], base]
    elif clause.negated or question:
        do = "did" if clause.tense == "past" else "does" if agreement == 1 else "do"
        verbs = [do, base]
    else:
        verbs = [past if clause.tense == "past" else third if agreement == 1 else base]
    if clause.negated:
        verbs.insert(1, "not")
    subject = [clause.subject.english[0]]
    start = [verbs[0], *subject, *verbs[1:]] if question else [*subject, *verbs]
    objects = [f"{preposition} {phrase.english[1]}" for phrase, preposition, _, _ in clause.objects]
    return [*start, *objects, *(clause.adverb or [])[:1]]


def german(clause: Clause, order: str, front: Sequence[str] = ()) -> list[str]:
    """Return a clause with its finite verb second (main), first (question) or last (final)."""
    finite, rest, prefix = _verbs(clause)
    subject = clause.subject.german["nom"]
    middle = _middle_field(clause)
    if order == "final":
        return [subject, *middle, *rest, prefix + finite]
    start = [finite, subject] if order == "question" or front else [subject, finite]
    return [*front, *start, *middle, *rest, prefix]


def _verbs(clause: Clause) -> tuple[str, list[str], str]:
    """Return the finite verb, the rest of the verb, and the prefix if it is separate."""
    infinitive, third, past, participle, prefix, auxiliary = clause.verb[1]
    prefix = prefix.strip("-")
    stem = infinitive.removesuffix("en")
    third, past = third.replace("-", f"{stem}t"), past.replace("-", f"{stem}te")
    agreement = ("1sg", "3sg", "pl").index(clause.subject.agreement)
    if clause.tense == "present":
        return [infinitive[:-1], third, infinitive][agreement], [], prefix
    if clause.tense == "past":
        plural = past + ("n" if past.endswith("e") else "en")
        return [past, past, plural][agreement], [], prefix
    if clause.tense == "perfect":
        rest = prefix + participle.replace("-", f"ge{stem}t")
    else:
        auxiliary, rest = _AUXILIARIES[clause.tense][1], prefix + infinitive
    return _FINITE[auxiliary].split()[agreement], [rest], ""


def _middle_field(clause: Clause) -> list[str]:
    """Return pronouns, adverb, other objects, negation and objects with prepositions."""
    pronouns: list[tuple[str, str]] = []
    nouns: list[tuple[str, str]] = []
    prepositional = []
    for phrase, _, preposition, case in clause.objects:
        text = phrase.german[case]
        if preposition:
            fused = {"in dem": "im", "in das": "ins", "an das": "ans"}
            two = " ".join([preposition, text.split()[0]])
            prepositional.append(" ".join([fused.get(two, two), *text.split()[1:]]))
        else:
            (pronouns if phrase.pronoun else nouns).append((case, text))
    pronouns.sort()  # acc before dat; nouns are the other way round
    adverb = clause.adverb[1:2] if clause.adverb else []
    words = [text for _, text in pronouns] + adverb + [text for _, text in nouns]
    return [*words, *(["nicht"] if clause.negated else []), *prepositional]


def _finished(source: list[str], target: list[str], stop: str = ".") -> tuple[str, str]:
    """Return both sides as text: capitalised, with single blanks and none before punctuation."""
    sides = [" ".join(" ".join(side).split()).replace(" ,", ",") for side in (source, target)]
    return sides[0][0].upper() + sides[0][1:] + stop, sides[1][0].upper() + sides[1][1:] + stop
