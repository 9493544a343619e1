"""The abstract syntax that both languages share.

A sentence is a `Clause`: a predicate, its arguments and adjuncts, and features such as tense and
polarity. Nodes compare by identity, because a node together with the name of a part of it
("noun", "det", "verb" ...) is the key by which words of the two languages are aligned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from data_prep.embedded.lexicon import Adjective, Adverbial, Noun, Verb

Key = tuple[object, str]


@dataclass(frozen=True)
class Determiner:
    """English word, German stem, and the number that it demands ("" for any)."""

    english: str
    german: str
    upos: str = "DET"
    definite: bool = True
    lemma: str = ""


@dataclass(eq=False)
class Modifier:
    """An attributive or predicative adjective phrase."""

    adjective: Adjective
    intensifier: str = ""
    comparative: bool = False
    than: NounPhrase | None = None


@dataclass(eq=False)
class NounPhrase:
    """A noun with dependents, a proper name, or (noun is None) a pronoun.

    ``role`` tells special pronouns apart: "" personal, "who", "what", "relative", "dummy" (es).
    """

    noun: Noun | None = None
    number: str = "sg"
    person: int = 3
    gender: str = ""  # German gender of a pronoun
    sex: str = ""  # English gender of a pronoun
    role: str = ""
    determiner: Determiner | None = None
    modifiers: list[Modifier] = field(default_factory=list)
    possessor: NounPhrase | None = None
    relative: Clause | None = None
    conjuncts: list[NounPhrase] = field(default_factory=list)
    conjunction: tuple[str, str] = ("and", "und")

    @property
    def agreement_number(self) -> str:
        return "pl" if self.conjuncts else self.number

    @property
    def agreement_person(self) -> int:
        return 3 if self.conjuncts else self.person

    @property
    def is_pronoun(self) -> bool:
        return self.noun is None and not self.conjuncts

    @property
    def definite(self) -> bool:
        if self.noun is None or self.noun.proper or self.possessor is not None:
            return True
        return self.determiner is not None and self.determiner.definite

    @property
    def noun_is_proper(self) -> bool:
        return self.noun is not None and self.noun.proper

    @property
    def german_gender(self) -> str:
        return self.noun.gender if self.noun else self.gender


@dataclass(eq=False)
class PrepPhrase:
    """A preposition and its noun phrase; ``kind`` decides the place in the German middle field."""

    english: str
    german: str
    case: str
    noun_phrase: NounPhrase
    kind: str  # "object", "place", "dir"


@dataclass(eq=False)
class AdverbialUse:
    """One use of a fixed adverbial (the lexical entry may be used twice in a sentence)."""

    entry: Adverbial

    @property
    def kind(self) -> str:
        return self.entry.kind


Adjunct = PrepPhrase | AdverbialUse


@dataclass(frozen=True)
class Modal:
    """A modal verb of German with its English counterpart.

    ``shape``: "aux" (can V), "semi" (want to V), "polite" (would like to V), "passive" (be allowed
    to V), "gern" (like to V, rendered by the adverb gern and a full verb).
    """

    english: str
    german: str
    shape: str
    past: str = ""
    tense: str = "present"
    german_negated: str = ""


@dataclass(eq=False)
class Subordinate:
    """A dependent clause with its conjunction; ``relation`` is its UD relation to the governor."""

    english: str
    german: str
    clause: Clause
    relation: str  # advcl, ccomp, xcomp


Predicate = Modifier | NounPhrase | PrepPhrase


@dataclass(eq=False)
class Clause:
    """``verb`` is None in copular clauses, whose ``predicate`` is set instead.

    ``tense``: present, progressive, past, past progressive, perfect, pluperfect, future.
    ``front``: what stands before the finite verb instead of the subject: an adjunct, a question
    word's phrase, a topicalised object, a relative pronoun's phrase or a subordinate clause.
    """

    subject: NounPhrase
    verb: Verb | None = None
    predicate: Predicate | None = None
    copula_german: str = "sein"
    tense: str = "present"
    modal: Modal | None = None
    negated: bool = False
    direct: NounPhrase | None = None
    indirect: NounPhrase | None = None
    dative_direct: bool = False
    prepositional: list[PrepPhrase] = field(default_factory=list)
    adjuncts: list[Adjunct] = field(default_factory=list)
    subordinates: list[Subordinate] = field(default_factory=list)
    front: NounPhrase | Adjunct | Subordinate | WhAdverb | None = None
    existential: bool = False
    coordinated: Coordination | None = None

    @property
    def arguments(self) -> list[NounPhrase]:
        return [np for np in (self.indirect, self.direct) if np is not None]


@dataclass(eq=False)
class WhAdverb:
    english: str
    german: str


@dataclass(eq=False)
class Coordination:
    """A second conjunct: a full clause, or a verb phrase that shares the subject."""

    english: str
    german: str
    clause: Clause
    shared_subject: bool = False
    comma: bool = False
    german_comma: bool = False
