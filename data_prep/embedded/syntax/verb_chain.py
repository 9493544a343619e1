"""The English verbal complex: auxiliaries, do-support, negation, infinitives.

The chain is first put together without regard to negation and inversion ("wants to read", "has
read"); where these meet a chain that opens with a full verb, do is put in front of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded.morphology import english as forms
from data_prep.embedded.syntax.nodes import Clause, Key


@dataclass(frozen=True)
class Element:
    """``kind`` is a UD relation for auxiliaries, "matrix" or "lexical" for full verbs."""

    form: str
    lemma: str
    upos: str
    kind: str
    keys: tuple[Key, ...]
    glued: bool = False


def verb_chain(node: Clause, form: str, inverted: bool) -> list[Element]:
    builder = _Chain(node)
    if form == "infinitive":
        return [builder.to(), builder.lexical("base")]
    if form == "imperative" or node.tense == "bare":
        elements = [builder.lexical("base")]
    else:
        elements = builder.elements()
    opens_with_full_verb = elements[0].kind in ("lexical", "matrix") and elements[0].lemma != "be"
    if opens_with_full_verb and (node.negated or inverted):
        elements = builder.with_do(elements, imperative=form == "imperative")
    if node.negated:
        elements.insert(1, builder.negation(after=elements[0].form))
    return elements


class _Chain:
    def __init__(self, node: Clause) -> None:
        self.node = node
        self.person = node.subject.agreement_person
        self.number = node.subject.agreement_number
        verb = node.verb
        self.base = verb.english if verb else "be"
        self.past = verb.english_past if verb else "were"
        self.participle = verb.english_participle if verb else "been"

    def elements(self) -> list[Element]:
        if self.node.modal is not None:
            return self._modal()
        tense = self.node.tense
        if tense == "future":
            return [self._auxiliary("will", "will"), self.lexical("base")]
        if tense in ("perfect", "pluperfect"):
            have = "present" if tense == "perfect" else "past"
            return [self._finite_auxiliary("have", have), self.lexical("participle")]
        if tense in ("progressive", "past progressive"):
            be = "present" if tense == "progressive" else "past"
            return [self._finite_auxiliary("be", be), self.lexical("ing")]
        return [self.lexical(tense)]

    def _modal(self) -> list[Element]:
        modal = self.node.modal
        assert modal is not None
        past = modal.tense == "past"
        infinitive = [self.to(), self.lexical("base")]
        if modal.shape == "aux":
            form = modal.past if past else modal.english
            return [self._auxiliary(form, modal.english), self.lexical("base")]
        if modal.shape == "polite":
            like = self._matrix("like", "like")
            return [self._auxiliary("would", "would"), like, *infinitive]
        if modal.shape == "passive":
            be = self._finite_auxiliary("be", modal.tense, "aux:pass")
            return [be, self._matrix("allowed", "allow"), *infinitive]
        finite = forms.finite(modal.english, modal.past, modal.tense, self.person, self.number)
        return [self._matrix(finite, modal.english), *infinitive]

    def _auxiliary(self, form: str, lemma: str, relation: str = "aux") -> Element:
        return Element(form, lemma, "AUX", relation, ((self.node, "aux"),))

    def _finite_auxiliary(self, lemma: str, tense: str, relation: str = "aux") -> Element:
        form = forms.finite(lemma, "", tense, self.person, self.number)
        return self._auxiliary(form, lemma, relation)

    def _matrix(self, form: str, lemma: str) -> Element:
        return Element(form, lemma, "VERB", "matrix", ((self.node, "aux"),))

    def to(self) -> Element:
        return Element("to", "to", "PART", "mark", ((self.node, "zu"),))

    def lexical(self, shape: str) -> Element:
        """The full verb, or the copula; ``shape``: base, participle, ing, present, past."""
        form = {"base": self.base, "participle": self.participle}.get(shape)
        if shape == "ing":
            form = forms.present_participle(self.base)
        if form is None:
            form = forms.finite(self.base, self.past, shape, self.person, self.number)
        keys = ((self.node, "verb"),)
        if self.node.existential:
            return Element(form, "be", "VERB", "lexical", keys)
        if self.node.verb is None:
            return Element(form, "be", "AUX", "cop", keys)
        return Element(form, self.base, "VERB", "lexical", keys)

    def with_do(self, elements: list[Element], imperative: bool) -> list[Element]:
        """ "reads" becomes "does read": tense and agreement move to do."""
        first = elements[0]
        modal = self.node.modal
        tense = modal.tense if modal else self.node.tense
        form = "do" if imperative else forms.finite("do", "", tense, self.person, self.number)
        bare = Element(first.lemma, first.lemma, "VERB", first.kind, first.keys)
        return [self._auxiliary(form, "do"), bare, *elements[1:]]

    def negation(self, after: str) -> Element:
        """One written word in "cannot", two syntactic ones."""
        return Element("not", "not", "PART", "advmod", ((self.node, "neg"),), after == "can")
