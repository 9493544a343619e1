"""English linearisation, with the dependency tree built on the way (Universal Dependencies v2).

Every function returns a `Phrase`: tokens in order and the head among them. Attaching a phrase sets
the head and relation of its head token, so the tree is complete when the root phrase is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from data_prep.embedded.morphology import english as forms
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Coordination,
    Key,
    Modifier,
    NounPhrase,
    PrepPhrase,
    Subordinate,
    WhAdverb,
)
from data_prep.embedded.syntax.verb_chain import Element, verb_chain


@dataclass(eq=False)
class Token:
    form: str
    lemma: str
    upos: str
    keys: frozenset[Key]
    head: Token | None = None
    relation: str = "root"
    glued: bool = False  # no space before it

    def under(self, head: Token, relation: str) -> Token:
        self.head, self.relation = head, relation
        return self


def token(form: str, lemma: str, upos: str, *keys: Key, glued: bool = False) -> Token:
    return Token(form, lemma, upos, frozenset(keys), glued=glued)


@dataclass(eq=False)
class Phrase:
    head: Token
    tokens: list[Token] = field(default_factory=list)

    def under(self, head: Token, relation: str) -> list[Token]:
        self.head.under(head, relation)
        return self.tokens


def punctuation(mark: str, head: Token, *keys: Key) -> Token:
    return token(mark, mark, "PUNCT", *keys, glued=True).under(head, "punct")


# --- noun phrases ------------------------------------------------------------------------------


def noun_phrase(np: NounPhrase, case: str = "object") -> Phrase:
    first = _pronoun(np, case) if np.noun is None else _full_noun_phrase(np)
    for conjunct in np.conjuncts:
        other = noun_phrase(conjunct, case)
        link = token(np.conjunction[0], np.conjunction[0], "CCONJ", (np, "and"))
        tokens = other.under(first.head, "conj")
        first.tokens += [link.under(other.head, "cc"), *tokens]
    return first


def _pronoun(np: NounPhrase, case: str) -> Phrase:
    key = (np, "noun")
    if np.role:
        only = token(np.role, np.role, "PRON", key)
        return Phrase(only, [only])
    subject, oblique, _ = forms.PRONOUNS[np.person, np.number, np.sex]
    only = token(subject if case == "subject" else oblique, subject, "PRON", key)
    return Phrase(only, [only])


def _full_noun_phrase(np: NounPhrase) -> Phrase:
    assert np.noun is not None
    upos = "PROPN" if np.noun.proper or np.noun.bare else "NOUN"
    head = token(forms.noun_form(np.noun, np.number), np.noun.english, upos, (np, "noun"))
    tokens: list[Token] = []
    for modifier in np.modifiers:
        tokens += adjective_phrase(modifier).under(head, "amod")
    tokens.append(head)
    tokens = [*_determiner(np, head, tokens[0].form), *tokens]
    if np.relative is not None:
        tokens += clause(np.relative, "relative").under(head, "acl:relcl")
    return Phrase(head, tokens)


def _determiner(np: NounPhrase, head: Token, next_form: str) -> list[Token]:
    if np.possessor is not None:
        owner = noun_phrase(np.possessor)
        # As "the teacher's car" is "das Auto des Lehrers", 's itself has no counterpart.
        mark = token("'s", "'s", "PART", glued=True).under(owner.head, "case")
        return [*owner.under(head, "nmod:poss"), mark]
    determiner = np.determiner
    if determiner is None:
        return []
    form = determiner.english
    if form == "a":
        form = forms.indefinite_article(next_form)
    relation = {"PRON": "nmod:poss", "NUM": "nummod", "ADJ": "amod"}.get(determiner.upos, "det")
    lemma = determiner.lemma or determiner.english
    return [token(form, lemma, determiner.upos, (np, "det")).under(head, relation)]


def adjective_phrase(modifier: Modifier) -> Phrase:
    entry = modifier.adjective
    words: list[Token] = []
    if not modifier.comparative:
        head = token(entry.english, entry.english, "ADJ", (modifier, "adj"))
    elif entry.english_comparative.startswith("more "):
        head = token(entry.english, entry.english, "ADJ", (modifier, "adj"))
        words.append(token("more", "more", "ADV", (modifier, "adj")).under(head, "advmod"))
    else:
        head = token(entry.english_comparative, entry.english, "ADJ", (modifier, "adj"))
    if modifier.intensifier:
        word = modifier.intensifier
        words.insert(0, token(word, word, "ADV", (modifier, "very")).under(head, "advmod"))
    words.append(head)
    if modifier.than is not None:
        than = noun_phrase(modifier.than)
        words.append(token("than", "than", "ADP", (modifier, "than")).under(than.head, "case"))
        words += than.under(head, "obl")
    return Phrase(head, words)


def prep_phrase(pp: PrepPhrase) -> Phrase:
    """Multiword prepositions ("in front of") hang together by fixed."""
    inner = noun_phrase(pp.noun_phrase)
    words = pp.english.split()
    if not words:
        return inner
    first = token(words[0], words[0], "ADP", (pp, "prep")).under(inner.head, "case")
    rest = [_fixed(word, pp).under(first, "fixed") for word in words[1:]]
    return Phrase(inner.head, [first, *rest, *inner.tokens])


def _fixed(word: str, pp: PrepPhrase) -> Token:
    return token(word, word, "NOUN" if word == "front" else "ADP", (pp, "prep"))


def adverbial(use: AdverbialUse) -> Phrase:
    """A frozen phrase; its inner tree stands in the lexicon."""
    words = use.entry.english
    tokens = [token(w.form, w.lemma, w.upos, (use, str(i))) for i, w in enumerate(words)]
    head = next(t for t, w in zip(tokens, words, strict=True) if w.head < 0)
    for item, word in zip(tokens, words, strict=True):
        if word.head >= 0:
            item.under(tokens[word.head], word.relation)
    return Phrase(head, tokens)


def adjunct(item: PrepPhrase | AdverbialUse) -> tuple[Phrase, str]:
    if isinstance(item, PrepPhrase):
        return prep_phrase(item), "obl"
    head = next(word for word in item.entry.english if word.head < 0)
    return adverbial(item), head.relation


# --- clauses -----------------------------------------------------------------------------------


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
        return noun_phrase(self.node.subject, "subject").under(self.governor, "nsubj")

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
_MIDCLAUSE = ("freq", "aspect", "just", "still")


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
