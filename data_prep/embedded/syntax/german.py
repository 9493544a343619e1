"""German linearisation by topological fields.

A clause is laid out as: pre-field, left bracket, middle field, right bracket, post-field. Main
clauses have the finite verb in the left bracket (after one constituent: verb-second; after none:
questions and imperatives); subordinate clauses have the conjunction there and all verbs in the
right bracket, the finite one last. The middle field is ordered by rank (`german_middle_field`).
"""

from __future__ import annotations

from data_prep.embedded.morphology import verbal
from data_prep.embedded.syntax.german_middle_field import case_of, middle_field
from data_prep.embedded.syntax.german_phrases import (
    Word,
    adverbial,
    mark,
    noun_phrase,
    prep_phrase,
    word,
)
from data_prep.embedded.syntax.german_verbs import has_right_bracket, verbal_complex
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Coordination,
    PrepPhrase,
    Subordinate,
    WhAdverb,
)

# --- clauses -----------------------------------------------------------------------------------


def clause(node: Clause, form: str) -> list[Word]:
    """``form`` as in the English linearisation."""
    if form == "infinitive":
        return _infinitive_clause(node)
    if form == "imperative":
        return _imperative(node)
    verbs = verbal_complex(node, form)
    front = _front(node, form)
    middle = middle_field(node, with_subject=not _subject_is_first(node, form) and form != "shared")
    if form in ("sub", "relative"):
        words = [*front, *middle, *verbs.final()]
    else:
        finite = [verbs.finite] if verbs.finite.form else []
        words = [*front, *finite, *middle, *verbs.rest, *verbs.prefix]
    return [*words, *_extraposed(node), *_post_field(node)]


def _extraposed(node: Clause) -> list[Word]:
    """The object's relative clause, moved behind the right bracket: Er hat das Buch gelesen, das
    sie ihm gab."""
    np = node.direct
    if np is None or np.relative is None or not has_right_bracket(node):
        return []
    return [mark(","), *clause(np.relative, "relative"), mark(",")]


def _subject_is_first(node: Clause, form: str) -> bool:
    """Is the subject in the pre-field (or is it a relative pronoun, or an asked "who")?"""
    if node.front is node.subject:
        return True
    if form in ("sub", "question", "shared"):
        return False
    return node.front is None


def _front(node: Clause, form: str) -> list[Word]:
    if form == "shared":
        return []
    front = node.front
    if node.existential:  # In diesem Dorf gibt es ...
        return [w for a in node.adjuncts if isinstance(a, PrepPhrase) for w in prep_phrase(a)]
    if front is None:
        return noun_phrase(node.subject, "nom") if _subject_is_first(node, form) else []
    if isinstance(front, Subordinate):
        return [*subordinate(front), mark(",", (front, "comma"))]
    if isinstance(front, WhAdverb):
        return [word(front.german, (front, "wh"))]
    if isinstance(front, PrepPhrase):
        return prep_phrase(front)
    if isinstance(front, AdverbialUse):
        return adverbial(front)
    return noun_phrase(front, case_of(node, front))


def _infinitive_clause(node: Clause) -> list[Word]:
    """zu-infinitive; "um" is the conjunction's business."""
    middle = middle_field(node, with_subject=False)
    if node.verb is None:
        zu: tuple[str, ...] = ("zu", "sein")
    else:
        zu = verbal.zu_infinitive(node.verb)
    keys = ((node, "zu"), (node, "verb"))
    verbs = (
        [word(zu[0], *keys)]
        if len(zu) == 1
        else [
            word(zu[0], keys[0]),
            word(zu[1], keys[1]),
        ]
    )
    return [*middle, *verbs, *_post_field(node)]


def _imperative(node: Clause) -> list[Word]:
    assert node.verb is not None
    first = word(verbal.imperative(node.verb), (node, "verb"), (node, "aux"))
    prefix = [word(node.verb.prefix, (node, "verb"))] if node.verb.prefix else []
    return [first, *middle_field(node, with_subject=False), *prefix, *_post_field(node)]


def _post_field(node: Clause) -> list[Word]:
    words: list[Word] = []
    for item in node.subordinates:
        if item is not node.front:
            words += [mark(",", (item, "comma")), *subordinate(item)]
    if node.coordinated is not None:
        words += _coordination(node.coordinated)
    return words


def subordinate(item: Subordinate) -> list[Word]:
    """A dependent clause without its commas; "um" opens infinitives of purpose."""
    form = "infinitive" if item.relation == "xcomp" or item.english == "to" else "sub"
    opening = [word(item.german, (item, "mark"))] if item.german else []
    return [*opening, *clause(item.clause, form)]


def _coordination(item: Coordination) -> list[Word]:
    comma = [mark(",", (item, "comma"))] if item.german_comma else []
    inner = clause(item.clause, "shared" if item.shared_subject else "main")
    return [*comma, word(item.german, (item, "and")), *inner]


# --- sentences -----------------------------------------------------------------------------------


def sentence(node: Clause, form: str, stop: str) -> list[Word]:
    """All words, with doubled commas reduced, closed by the mark and capitalised."""
    words = [*clause(node, form), mark(stop, (node, "stop"))]
    kept = [
        w
        for w, following in zip(words, [*words[1:], None], strict=True)
        if not (w.form == "," and following is not None and following.form in (",", ".", "?", "!"))
    ]
    kept[0].form = kept[0].form[0].upper() + kept[0].form[1:]
    return kept
