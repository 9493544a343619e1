"""The constructions of the grammar and the weights with which a corpus mixes them.

A construction is a function from a `Scene` to (tree, form, punctuation mark); it raises `NoFit`
when its random choices have led nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

from data_prep.embedded.grammar import complex_sentences as cx
from data_prep.embedded.grammar import simple_sentences as sx
from data_prep.embedded.grammar.scene import Scene
from data_prep.embedded.syntax.nodes import Clause

Construction = Callable[[Scene], tuple[Clause, str, str]]

CONSTRUCTIONS: dict[str, tuple[Construction, float]] = {
    # simple sentences
    "statement": (sx.statement, 16),
    "negation": (sx.negation, 7),
    "modal": (sx.modal, 9),
    "modal negated": (sx.modal_negated, 3),
    "quality": (sx.quality, 4),
    "profession": (sx.profession, 2),
    "comparison": (sx.comparison, 2),
    "position": (sx.position, 2),
    "existence": (sx.existence, 2),
    "topic": (sx.topic, 1.5),
    "polar question": (sx.polar_question, 5),
    "question for a person": (sx.who_question, 2),
    "question for an object": (sx.what_question, 3),
    "question for a circumstance": (sx.adverb_question, 3),
    "request": (sx.request, 3),
    # complex sentences
    "cause": (cx.cause, 5),
    "hindrance": (cx.hindrance, 3),
    "concession": (cx.concession, 3),
    "condition": (cx.condition, 3),
    "point in time": (cx.point_in_time, 3),
    "simultaneity": (cx.simultaneity, 2),
    "sequence": (cx.sequence, 3),
    "reported statement": (cx.reported_statement, 4),
    "reported question": (cx.reported_question, 3),
    "relative on subject": (cx.relative_on_subject, 4),
    "relative on object": (cx.relative_on_object, 4),
    "infinitive": (cx.infinitive, 3),
    "purpose": (cx.purpose, 2),
    "verb phrase coordination": (cx.verb_phrase_coordination, 4),
    "clause coordination": (cx.clause_coordination, 4),
}
