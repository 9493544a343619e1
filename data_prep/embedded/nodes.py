"""The abstract syntax that both languages share, and the words that they make of it.

A sentence is a `Clause`: a subject, a verb or predicate, further parts, and features such as tense
and polarity. Nodes compare by identity, because a node together with the name of a part of it
("noun", "det", "verb" ...) is the key by which words of the two languages are aligned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from data_prep.embedded.lexicon import Adjective, Adverbial, Determiner, Noun, Tense, Verb

Key = tuple[object, str]


@dataclass(eq=False)
class Word:
    """A word of either language; lemma, part of speech, head and relation are of English ones."""

    form: str
    keys: frozenset[Key]
    lemma: str = ""
    upos: str = ""
    head: Word | None = None
    relation: str = "root"
    glued: bool = False  # no space before it

    def under(self, head: Word, relation: str) -> Word:
        self.head, self.relation = head, relation
        return self


@dataclass(eq=False)
class Modifier:
    """An attributive or predicative adjective, perhaps with "very"."""

    adjective: Adjective
    very: bool = False


@dataclass(eq=False)
class NounPhrase:
    """A noun with dependents, a proper name, or (noun is None) a pronoun.

    ``role`` tells special pronouns apart: "" personal; "who", "what" and, with a gender, the
    relative pronouns "who", "whom", "that", "which". ``gender`` of a pronoun is the German one,
    ``sex`` the English one.
    """

    noun: Noun | None = None
    number: str = "sg"
    person: int = 3
    gender: str = ""
    sex: str = ""
    role: str = ""
    determiner: Determiner | None = None
    modifier: Modifier | None = None
    possessor: NounPhrase | None = None
    relative: Clause | None = None

    @property
    def is_pronoun(self) -> bool:
        return self.noun is None

    @property
    def definite(self) -> bool:
        if self.noun is None or self.noun.proper or self.possessor is not None:
            return True
        return self.determiner is not None and self.determiner.definite


@dataclass(eq=False)
class Argument:
    """A noun phrase beside the verb, with its preposition ("" for none) and German case.

    ``kind``: "obj", "iobj", "oblique" (prepositional objects), "place", "dir".
    """

    noun_phrase: NounPhrase
    kind: str
    case: str = "acc"
    english: str = ""
    german: str = ""


@dataclass(eq=False)
class AdverbialUse:
    """One use of a fixed adverbial (the lexical entry may be used twice in a sentence)."""

    entry: Adverbial

    @property
    def kind(self) -> str:
        return self.entry.kind


Part = Argument | AdverbialUse


@dataclass(eq=False)
class Linked:
    """A clause with its conjunction; ``relation`` is its UD relation to the governor:
    advcl, ccomp, xcomp, conj."""

    english: str
    german: str
    clause: Clause
    relation: str


@dataclass(eq=False)
class Clause:
    """``verb`` is None in copular clauses, whose ``predicate`` is set instead.

    ``front``: what stands before the finite verb instead of the subject: a part, the subject itself
    where it is asked for or relative, or a dependent clause.
    """

    subject: NounPhrase
    tense: Tense
    verb: Verb | None = None
    predicate: Modifier | None = None
    negated: bool = False
    parts: list[Part] = field(default_factory=list)
    linked: list[Linked] = field(default_factory=list)
    front: NounPhrase | Part | Linked | None = None

    def argument(self, *kinds: str) -> NounPhrase | None:
        """The first argument of one of the kinds."""
        found = (p for p in self.parts if isinstance(p, Argument) and p.kind in kinds)
        return next((p.noun_phrase for p in found), None)

    def form_of(self, linked: Linked) -> str:
        """How a linked clause is built: infinitive, sub, main, or shared (same subject)."""
        if linked.relation == "conj":
            return "shared" if linked.clause.subject is self.subject else "main"
        return "infinitive" if linked.relation == "xcomp" or linked.english == "to" else "sub"
