"""The German middle field: what stands between the brackets, ordered by rank."""

from __future__ import annotations

from data_prep.embedded.morphology import nominal
from data_prep.embedded.syntax.german_phrases import (
    Word,
    adjective_phrase,
    adverbial,
    noun_phrase,
    prep_phrase,
    word,
)
from data_prep.embedded.syntax.german_verbs import has_right_bracket
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Modifier,
    NounPhrase,
    PrepPhrase,
)


def middle_field(node: Clause, with_subject: bool) -> list[Word]:
    items: list[tuple[float, list[Word]]] = []
    if node.existential:
        items.append((0.0, [word("es", (node, "there"))]))
    elif with_subject:
        rank = 0.0 if node.subject.is_pronoun else 2.0
        items.append((rank, noun_phrase(node.subject, "nom")))
    if node.verb is not None and node.verb.reflexive:
        person, number = node.subject.agreement_person, node.subject.agreement_number
        reflexive = nominal.reflexive(person, number)
        items.append((1.0, [word(reflexive, (node, "verb"), (node, "aux"))]))
    fused = _kein_target(node)
    items += _argument_items(node, fused)
    if not node.existential:
        items += [_adjunct_item(node, a) for a in node.adjuncts if a is not node.front]
    if node.modal is not None and node.modal.shape == "gern":
        items.append((12.0, [word("gern", (node, "aux"))]))
    if node.negated and fused is None:
        items.append((11.0, [word("nicht", (node, "neg"))]))
    if node.predicate is not None:
        items.append((20.0, _predicate(node, fused)))
    return [w for _, words in sorted(items, key=lambda item: item[0]) for w in words]


def _kein_target(node: Clause) -> NounPhrase | None:
    """The indefinite phrase with which the negation fuses into kein."""
    if not node.negated:
        return None
    bare_cases = [pp.noun_phrase for pp in node.prepositional if not pp.german]
    candidates = [node.direct, *bare_cases, node.predicate]
    for np in candidates:
        if isinstance(np, NounPhrase) and np.noun is not None and not np.definite:
            return np
    return None


def _argument_items(node: Clause, fused: NounPhrase | None) -> list[tuple[float, list[Word]]]:
    items = []
    negation = (node, "neg")
    for np in node.arguments:
        if np is node.front:
            continue
        case = case_of(node, np)
        stays = not has_right_bracket(node)
        words = noun_phrase(np, case, negation if np is fused else None, relative=stays)
        items.append((_argument_rank(node, np, case), words))
    if node.existential:
        items.append((14.0, noun_phrase(node.subject, "acc")))
    items += [_prepositional_item(node, pp, fused) for pp in node.prepositional if pp != node.front]
    return items


def _prepositional_item(
    node: Clause, pp: PrepPhrase, fused: NounPhrase | None
) -> tuple[float, list[Word]]:
    """Some English prepositional objects are bare accusatives in German: look for, suchen."""
    if pp.german:
        return 15.0, prep_phrase(pp)
    np = pp.noun_phrase
    words = noun_phrase(np, pp.case, (node, "neg") if np is fused else None)
    if pp.case == "dat" and not np.is_pronoun:
        return 15.0, words  # gehört nicht dem Lehrer
    return _argument_rank(node, np, pp.case), words


def _argument_rank(node: Clause, np: NounPhrase, case: str) -> float:
    """Pronouns early, accusative before dative; nouns later, dative before accusative."""
    if np.is_pronoun:
        return 3.0 if case == "acc" else 4.0
    if case == "dat":
        return 7.0
    return 8.0 if np.definite else 14.0


def _adjunct_item(node: Clause, item: PrepPhrase | AdverbialUse) -> tuple[float, list[Word]]:
    if isinstance(item, PrepPhrase):
        return (13.0 if item.kind == "place" else 16.0), prep_phrase(item)
    kind = item.kind
    rank = _ADVERB_RANKS[kind]
    if kind == "time" and node.negated:
        rank = 9.0  # "nicht" follows the definite object, and the time stays next to it
    if kind == "yet" and _kein_target(node) is not None:
        rank = 13.9  # "noch kein"
    return rank, adverbial(item)


_ADVERB_RANKS = {
    "sentence": 5.0,
    "please": 5.0,
    "time": 6.0,
    "just": 6.0,
    "still": 6.0,
    "habit": 6.0,
    "freq": 10.0,
    "aspect": 10.0,
    "yet": 10.5,
    "prompt": 9.5,
    "manner": 12.0,
    "place": 13.0,
    "dir": 16.0,
}


def _predicate(node: Clause, fused: NounPhrase | None) -> list[Word]:
    value = node.predicate
    if isinstance(value, Modifier):
        return adjective_phrase(value)
    if isinstance(value, PrepPhrase):
        return prep_phrase(value)
    assert isinstance(value, NounPhrase)
    return noun_phrase(value, "nom", (node, "neg") if value is fused else None)


def case_of(node: Clause, np: NounPhrase) -> str:
    if np is node.subject:
        return "nom"
    return "dat" if np is node.indirect or node.dative_direct else "acc"
