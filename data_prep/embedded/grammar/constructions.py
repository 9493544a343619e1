"""The constructions of the grammar and the weights with which a corpus mixes them.

A construction is a function from a `Scene` to (tree, form, punctuation mark); it raises `NoFit`
when its random choices have led nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

from data_prep.embedded.grammar import (
    adverbial_clauses,
    complement_clauses,
    coordination,
    copular,
    questions,
    relative_clauses,
    statements,
)
from data_prep.embedded.grammar.scene import Scene
from data_prep.embedded.syntax.nodes import Clause

Construction = Callable[[Scene], tuple[Clause, str, str]]

CONSTRUCTIONS: dict[str, tuple[Construction, float]] = {
    # simple sentences
    "statement": (statements.statement, 16),
    "negation": (statements.negation, 7),
    "modal": (statements.modal, 9),
    "modal negated": (statements.modal_negated, 3),
    "quality": (copular.quality, 4),
    "profession": (copular.profession, 2),
    "comparison": (copular.comparison, 2),
    "position": (copular.position, 2),
    "existence": (copular.existence, 2),
    "topic": (statements.topic, 1.5),
    "polar question": (questions.polar_question, 5),
    "question for a person": (questions.who_question, 2),
    "question for an object": (questions.what_question, 3),
    "question for a circumstance": (questions.adverb_question, 3),
    "request": (questions.request, 3),
    # complex sentences
    "cause": (adverbial_clauses.cause, 5),
    "hindrance": (adverbial_clauses.hindrance, 3),
    "concession": (adverbial_clauses.concession, 3),
    "condition": (adverbial_clauses.condition, 3),
    "point in time": (adverbial_clauses.point_in_time, 3),
    "simultaneity": (adverbial_clauses.simultaneity, 2),
    "sequence": (adverbial_clauses.sequence, 3),
    "reported statement": (complement_clauses.reported_statement, 4),
    "reported question": (complement_clauses.reported_question, 3),
    "relative on subject": (relative_clauses.relative_on_subject, 4),
    "relative on object": (relative_clauses.relative_on_object, 4),
    "infinitive": (complement_clauses.infinitive, 3),
    "purpose": (complement_clauses.purpose, 2),
    "verb phrase coordination": (coordination.verb_phrase_coordination, 4),
    "clause coordination": (coordination.clause_coordination, 4),
}
