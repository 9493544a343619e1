"""Entries of the lexicon."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlaceUse:
    """Prepositions with which a noun names a location or a goal."""

    english_at: str
    german_at: str
    english_to: str
    german_to: str
    goal_case: str


@dataclass(frozen=True)
class Noun:
    english: str
    english_plural: str
    german: str
    gender: str
    german_plural: str
    classes: frozenset[str]
    weak: bool = False
    mass: bool = False
    plural_only: bool = False
    bare: bool = False
    genitive: str = ""
    place: PlaceUse | None = None
    proper: bool = False

    @property
    def countable(self) -> bool:
        return not (self.mass or self.proper) and bool(self.german_plural)


@dataclass(frozen=True)
class Adjective:
    english: str
    english_comparative: str
    german: str
    german_comparative: str
    classes: frozenset[str]
    predicative_classes: frozenset[str]
    excluded: frozenset[str]

    def modifies(self, noun: Noun, predicative: bool = False) -> bool:
        if noun.english in self.excluded:
            return False
        wanted = self.classes | self.predicative_classes if predicative else self.classes
        return bool(wanted & noun.classes)

    @property
    def gradable(self) -> bool:
        return bool(self.english_comparative)


@dataclass(frozen=True)
class FrameSlot:
    """One complement that a verb governs."""

    role: str
    classes: frozenset[str]
    optional: bool
    english: str = ""
    german: str = ""
    case: str = "acc"
    ground: bool = False  # a reference object in space: "under the table"
    own: bool = False  # mostly the subject's own: "her coat"
    singular: bool = False
    bare: bool = False  # German drops a lone definite article: "Klavier spielen"


@dataclass(frozen=True)
class Verb:
    english: str
    english_past: str
    english_participle: str
    particle: str
    german: str
    prefix: str
    reflexive: bool
    strong: tuple[str, str, str] | None
    auxiliary: str
    aspect: frozenset[str]
    subjects: frozenset[str]
    slots: tuple[FrameSlot, ...]
    places: frozenset[str]
    manner: frozenset[str]
    causes: tuple[str, ...]

    @property
    def past_is_base(self) -> bool:
        """True of "put" and "read": only the third person tells present from past."""
        return self.english_past == self.english


@dataclass(frozen=True)
class FixedWord:
    form: str
    lemma: str
    upos: str
    relation: str
    head: int  # index in the phrase, -1 for its head


@dataclass(frozen=True)
class Adverbial:
    """An adverb or frozen phrase; ``german`` pairs a word with indices of English words."""

    english: tuple[FixedWord, ...]
    german: tuple[tuple[str, tuple[int, ...]], ...]
    kind: str
    tenses: frozenset[str]
    may_open: bool
    comma: bool
    groups: frozenset[str]

    @property
    def text(self) -> str:
        return " ".join(word.form for word in self.english)


@dataclass(frozen=True)
class Cause:
    key: str
    of: str
    kind: str
    word: str
