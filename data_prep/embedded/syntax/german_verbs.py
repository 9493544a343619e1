"""The German verbal complex: finite verb, non-finite rest, separable prefix."""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded.morphology import verbal
from data_prep.embedded.syntax.german_phrases import Word, word
from data_prep.embedded.syntax.nodes import (
    Clause,
)


@dataclass
class VerbalComplex:
    """The finite verb, the non-finite rest of the right bracket, and the separable prefix."""

    finite: Word
    rest: list[Word]
    prefix: list[Word]

    def final(self) -> list[Word]:
        """All in the right bracket: the prefix joins a finite full verb (weil er aufsteht)."""
        if self.prefix:
            return [Word(self.prefix[0].form + self.finite.form, self.finite.keys)]
        return [*self.rest, self.finite]


def verbal_complex(node: Clause, form: str) -> VerbalComplex:
    person, number = node.subject.agreement_person, node.subject.agreement_number
    if node.existential:
        person, number = 3, "sg"
    verb_key, aux_key = (node, "verb"), (node, "aux")
    modal, tense = node.modal, _german_tense(node, form)

    def auxiliary(lemma: str, german_tense: str, *rest: Word) -> VerbalComplex:
        finite = verbal.finite_form(lemma, None, german_tense, person, number)
        return VerbalComplex(word(finite, aux_key), list(rest), [])

    if tense == "bare":  # a conjunct that shares the auxiliary as well
        return VerbalComplex(word("", aux_key), [word(_infinitive(node), verb_key)], [])
    full_infinitive = word(_infinitive(node), verb_key)
    if modal is not None and modal.shape != "gern":
        lemma = modal.german_negated if node.negated and modal.german_negated else modal.german
        return auxiliary(lemma, modal.tense, full_infinitive)
    if tense == "future":
        return auxiliary("werden", "present", full_infinitive)
    if tense in ("perfect", "pluperfect"):
        helper = node.verb.auxiliary if node.verb else "sein"
        german_tense = "present" if tense == "perfect" else "past"
        return auxiliary(helper, german_tense, word(_participle(node), verb_key))
    return _simple(node, tense, person, number)


def _simple(node: Clause, tense: str, person: int, number: str) -> VerbalComplex:
    keys = ((node, "verb"), (node, "aux"))
    if node.verb is None:
        lemma, parts = _copula(node)
        return VerbalComplex(
            word(verbal.finite_form(lemma, parts, tense, person, number), *keys), [], []
        )
    finite = word(verbal.finite(node.verb, tense, person, number), *keys)
    prefix = [word(node.verb.prefix, *keys)] if node.verb.prefix else []
    return VerbalComplex(finite, [], prefix)


_COPULAS = {
    "sein": ("sein", None),
    "liegen": ("liegen", ("liegt", "lag")),
    "stehen": ("stehen", ("steht", "stand")),
    "hängen": ("hängen", ("hängt", "hing")),
    "geben": ("geben", ("gibt", "gab")),
}


def _copula(node: Clause) -> tuple[str, tuple[str, str] | None]:
    return _COPULAS[node.copula_german]


def _infinitive(node: Clause) -> str:
    return verbal.infinitive(node.verb) if node.verb else node.copula_german


def _participle(node: Clause) -> str:
    if node.verb is None:
        return "gewesen"
    return verbal.participle(node.verb)


def _german_tense(node: Clause, form: str) -> str:
    """Preterite in statements; past questions take the perfect, as is idiomatic in speech."""
    tense = {"progressive": "present", "past progressive": "past"}.get(node.tense, node.tense)
    keeps_preterite = node.verb is None or "P" in node.verb.aspect
    if form == "question" and tense == "past" and not keeps_preterite:
        return "perfect"
    return tense


def has_right_bracket(node: Clause) -> bool:
    """In a main clause; the right bracket of other clauses always holds a verb."""
    separable = node.verb is not None and bool(node.verb.prefix)
    modal = node.modal is not None and node.modal.shape != "gern"
    return separable or modal or node.tense in ("perfect", "pluperfect", "future", "bare")
