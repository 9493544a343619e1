"""English noun, adjective, prepositional and adverbial phrases with their dependency trees."""

from __future__ import annotations

from dataclasses import dataclass, field

from data_prep.embedded.morphology import english as forms
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Key,
    Modifier,
    NounPhrase,
    PrepPhrase,
)


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


def noun_phrase(np: NounPhrase, case: str = "object") -> Phrase:
    first = _pronoun(np, case) if np.noun is None else _full_noun_phrase(np)
    for conjunct in np.conjuncts:
        other = noun_phrase(conjunct, case)
        link = token(np.conjunction[0], np.conjunction[0], "CCONJ", (np, "and"))
        tokens = other.under(first.head, "conj")
        first.tokens += [link.under(other.head, "cc"), *tokens]
    return first


def _relative_clause(node: Clause) -> Phrase:
    """Noun phrases and clauses contain each other, so one import has to wait for the call."""
    from data_prep.embedded.syntax.english import clause

    return clause(node, "relative")


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
        tokens += _relative_clause(np.relative).under(head, "acl:relcl")
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
