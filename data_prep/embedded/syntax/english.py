"""English linearisation, with the dependency tree built on the way (Universal Dependencies v2).

Every function returns a `Phrase`: tokens in order and the head among them. Attaching a phrase sets
the head and relation of its head token, so the tree is complete when the root phrase is.
"""

from __future__ import annotations

from data_prep.embedded.syntax.english_phrases import (
    Phrase,
    Token,
    adjective_phrase,
    adjunct,
    noun_phrase,
    prep_phrase,
    punctuation,
    token,
)
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Coordination,
    Modifier,
    NounPhrase,
    PrepPhrase,
    Subordinate,
    WhAdverb,
)
from data_prep.embedded.syntax.verb_chain import Element, verb_chain


def clause(node: Clause, form: str) -> Phrase:
    """``form``: main, question, imperative, sub (also of embedded questions), relative, infinitive,
    or shared (a conjoined verb phrase)."""
    return _ClauseBuilder(node, form).build()


class _ClauseBuilder:
    def __init__(self, node: Clause, form: str) -> None:
        self.node = node
        self.form = form
        asked = node.front is None or node.front is not node.subject
        self.inverted = form == "question" and asked
        self.chain, self.governor, self.lexical = self._verbs()

    def _verbs(self) -> tuple[list[Token], Token, Token]:
        """Tokens of the verbal complex; the clause's head; the token that governs the arguments."""
        node = self.node
        elements = verb_chain(node, self.form, self.inverted)
        tokens = [token(e.form, e.lemma, e.upos, *e.keys, glued=e.glued) for e in elements]
        predicate = self._predicate()
        lexical = predicate.head if predicate else _last(tokens, elements, "lexical")
        matrix = [t for t, e in zip(tokens, elements, strict=True) if e.kind == "matrix"]
        governor = matrix[0] if matrix else lexical
        for item, element in zip(tokens, elements, strict=True):
            if item is governor:
                continue
            if item is lexical:
                lexical.under(governor, "xcomp")
            elif element.kind == "mark" or (element.kind == "cop"):
                item.under(lexical, element.kind)
            else:
                item.under(governor, element.kind)
        if predicate and governor is not lexical:
            lexical.under(governor, "xcomp")
        self.predicate = predicate
        return tokens, governor, lexical

    def _predicate(self) -> Phrase | None:
        value = self.node.predicate
        if value is None:
            return None
        if isinstance(value, Modifier):
            return adjective_phrase(value)
        return prep_phrase(value) if isinstance(value, PrepPhrase) else noun_phrase(value)

    def build(self) -> Phrase:
        subject = self._subject()
        words = [*self._please(), *self._front()]
        verbs = self._with_midclause_adverbs()
        if self.inverted:
            words += [verbs[0], *subject, *verbs[1:]]
        else:
            words += [*subject, *verbs]
        words += self._arguments()
        if self.predicate:
            words += self.predicate.tokens
        words += self._final_adjuncts()
        words += self._subordinates()
        if self.node.coordinated is not None:
            words += coordination(self.node.coordinated, self.governor)
        return Phrase(self.governor, words)

    def _please(self) -> list[Token]:
        words: list[Token] = []
        for item in self.node.adjuncts:
            if item.kind == "please":
                phrase, relation = adjunct(item)
                words += phrase.under(self.lexical, relation)
        return words

    def _subject(self) -> list[Token]:
        if self.form in ("imperative", "infinitive", "shared"):
            return []
        if self.node.existential:
            return [
                token("there", "there", "PRON", (self.node, "there")).under(self.governor, "expl")
            ]
        passive = self.node.modal is not None and self.node.modal.shape == "passive"
        relation = "nsubj:pass" if passive else "nsubj"
        return noun_phrase(self.node.subject, "subject").under(self.governor, relation)

    def _front(self) -> list[Token]:
        front = self.node.front
        if front is None or front is self.node.subject:
            return []
        if isinstance(front, Subordinate):
            return [*subordinate(front, self.governor, closing_comma=True)]
        if isinstance(front, WhAdverb):
            word = token(front.english, front.english, "ADV", (front, "wh"))
            return [word.under(self.lexical, "advmod")]
        if isinstance(front, NounPhrase):
            return noun_phrase(front).under(self.lexical, "obj")
        phrase, relation = adjunct(front)
        words = phrase.under(self.lexical, relation)
        if isinstance(front, AdverbialUse) and front.entry.comma:
            words = [*words, punctuation(",", phrase.head)]
        return words

    def _with_midclause_adverbs(self) -> list[Token]:
        """Frequency and aspect adverbs stand after the first auxiliary, before a full verb."""
        words = list(self.chain)
        early = [a for a in self.node.adjuncts if _is_midclause(a) and a is not self.node.front]
        first_is_auxiliary = words[0].relation in ("aux", "cop", "aux:pass") or (
            words[0].lemma == "be"
        )
        at = 1 if first_is_auxiliary else 0
        if len(words) > 1 and words[1].lemma == "not":
            at += 1
        for item in early:
            phrase, relation = adjunct(item)
            words[at:at] = phrase.under(self.lexical, relation)
        return words

    def _arguments(self) -> list[Token]:
        node, words = self.node, []
        particle = self._particle()
        late_particle = node.direct is not None and node.direct.is_pronoun
        if particle and not late_particle:
            words.append(particle)
        if node.indirect is not None and node.indirect is not node.front:
            words += noun_phrase(node.indirect).under(self.lexical, "iobj")
        if node.existential:
            words += noun_phrase(node.subject).under(self.lexical, "nsubj")
        if node.direct is not None and node.direct is not node.front:
            words += noun_phrase(node.direct).under(self.lexical, "obj")
        if particle and late_particle:
            words.append(particle)
        for pp in node.prepositional:
            if pp is not node.front:
                bare = "obj" if not pp.english else "obl"
                words += prep_phrase(pp).under(self.lexical, bare)
        return words

    def _particle(self) -> Token | None:
        verb = self.node.verb
        if verb is None or not verb.particle:
            return None
        upos = "ADV" if verb.particle in ("away", "back", "forward") else "ADP"
        relation = "advmod" if upos == "ADV" else "compound:prt"
        word = token(verb.particle, verb.particle, upos, (self.node, "verb"))
        return word.under(self.lexical, relation)

    def _final_adjuncts(self) -> list[Token]:
        """Direction, manner, place, time: the order natural in English."""
        rest = [
            a for a in self.node.adjuncts if a is not self.node.front and a.kind in _FINAL_ORDER
        ]
        words: list[Token] = []
        for item in sorted(rest, key=lambda a: _FINAL_ORDER.index(a.kind)):
            phrase, relation = adjunct(item)
            words += phrase.under(self.lexical, relation)
        return words

    def _subordinates(self) -> list[Token]:
        words: list[Token] = []
        for item in self.node.subordinates:
            if item is not self.node.front:
                words += subordinate(item, self.lexical)
        return words


_FINAL_ORDER = ("dir", "manner", "prompt", "place", "time", "yet")
_MIDCLAUSE = ("freq", "habit", "aspect", "just", "still")


def _is_midclause(item: PrepPhrase | AdverbialUse) -> bool:
    if item.kind == "sentence":
        return True
    return item.kind in _MIDCLAUSE


def _last(tokens: list[Token], elements: list[Element], kind: str) -> Token:
    return [t for t, e in zip(tokens, elements, strict=True) if e.kind == kind][-1]


def subordinate(item: Subordinate, governor: Token, closing_comma: bool = False) -> list[Token]:
    inner = clause(
        item.clause, "infinitive" if item.relation == "xcomp" or (item.english == "to") else "sub"
    )
    words = inner.under(governor, item.relation)
    if item.english and item.english != "to":
        mark = token(item.english, item.english, "SCONJ", (item, "mark"))
        words = [mark.under(inner.head, "mark"), *words]
    if closing_comma:
        words = [*words, punctuation(",", inner.head, (item, "comma"))]
    return words


def coordination(item: Coordination, governor: Token) -> list[Token]:
    inner = clause(item.clause, "shared" if item.shared_subject else "main")
    words = inner.under(governor, "conj")
    link = token(item.english, item.english, "CCONJ", (item, "and")).under(inner.head, "cc")
    comma = [punctuation(",", inner.head, (item, "comma"))] if item.comma else []
    return [*comma, link, *words]


def sentence(node: Clause, form: str, mark: str) -> list[Token]:
    """All tokens of the sentence, closed by its punctuation mark and capitalised."""
    phrase = clause(node, form)
    tokens = [*phrase.tokens, punctuation(mark, phrase.head, (node, "stop"))]
    tokens[0].form = tokens[0].form[0].upper() + tokens[0].form[1:]
    return tokens
