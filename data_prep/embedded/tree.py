"""The abstract syntax that both languages share, and the words that they make of it.

A sentence is a `Clause`: a subject, a verb, perhaps a predicate, further parts, and features such
as tense and polarity. Nodes compare by identity, because a node together with the name of a part of
it ("noun", "det", "verb" ...) is the key by which words of the two languages are aligned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from data_prep.embedded import lexicon
from data_prep.embedded.lexicon import NO_PREPOSITION, Adjective, Classes, Noun

Key = tuple[object, str]
PERSON = frozenset({"person", "adult"})


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
class NounPhrase:
    """A noun with dependents, a name, or (noun is None) a pronoun.

    ``sex`` of a pronoun is its column "gender" in pronouns.txt: what English tells apart, also
    "who" and "what". ``role``: the English relative pronoun. ``antecedent``: the noun for which a
    relative or personal pronoun stands, and which gives the German gender.
    """

    noun: Noun | None = None
    number: str = "sg"
    person: int = 3
    sex: str = ""
    role: str = ""
    antecedent: Noun | None = None
    determiner: lexicon.Determiner | None = None
    adjective: Adjective | None = None
    relative: Clause | None = None

    @property
    def classes(self) -> Classes:
        """What it denotes."""
        stands_for = self.noun or self.antecedent
        if stands_for:
            return stands_for.classes
        return frozenset({"weather"}) if self.sex == "n" else PERSON


@dataclass(eq=False)
class Part:
    """What stands beside the verb: a noun phrase with its preposition, or a fixed adverbial.

    ``kind``: of arguments as in verbs.txt, of adverbials as in adverbials.txt.
    """

    kind: str
    noun_phrase: NounPhrase = field(default_factory=NounPhrase)
    preposition: lexicon.Preposition = NO_PREPOSITION
    fixed: lexicon.Adverbial | None = None


@dataclass(eq=False)
class Linked:
    """A clause with its conjunction ("" for none); ``relation`` is its UD relation to the governor,
    ``form`` how it is built, see `english.clause`."""

    english: str
    german: str
    relation: str
    form: str
    clause: Clause


@dataclass(eq=False)
class Clause:
    """``predicate``: an adjective behind the copula.

    ``front``: what opens the clause instead of the subject: one of ``parts`` or ``linked``.
    """

    subject: NounPhrase
    tense: lexicon.Tense
    verb: lexicon.Verb
    predicate: Adjective | None = None
    negated: bool = False
    parts: list[Part] = field(default_factory=list)
    linked: Linked | None = None
    front: Part | Linked | None = None

    def argument(self, kind: str) -> NounPhrase | None:
        return next((part.noun_phrase for part in self.parts if part.kind == kind), None)


class Sentence(NamedTuple):
    """``form``: main or question; ``stop``: the closing punctuation mark."""

    tree: Clause
    form: str = "main"
    stop: str = "."
