"""English linearisation, with the dependency tree built on the way (Universal Dependencies v2).

Every function returns a `Phrase`: words in order and the head among them. Attaching a phrase sets
the head and relation of its head word, so the tree is complete when the root phrase is.
"""

from __future__ import annotations

from typing import NamedTuple

from data_prep.embedded import forms
from data_prep.embedded.lexicon import PRONOUNS, Adverbial, Noun, english_paradigm
from data_prep.embedded.tree import Clause, Key, Linked, NounPhrase, Part, Sentence, Word


class Phrase(NamedTuple):
    head: Word
    words: list[Word]

    def under(self, head: Word, relation: str) -> list[Word]:
        self.head.under(head, relation)
        return self.words


def word(form: str, lemma: str, upos: str, *keys: Key, glued: bool = False) -> Word:
    return Word(form, frozenset(keys), lemma, upos, glued=glued)


# --- phrases -------------------------------------------------------------------------------------


def noun_phrase(np: NounPhrase, subject: bool = False) -> Phrase:
    if np.noun is not None:
        return _full(np, np.noun)
    form = lemma = np.role
    if not np.role:
        row = PRONOUNS[np.person, np.number, np.sex]
        form, lemma = row["subject" if subject else "object"], row["subject"]
    only = word(form, lemma, "PRON", (np, "noun"))
    return Phrase(only, [only])


def _full(np: NounPhrase, entry: Noun) -> Phrase:
    upos = "PROPN" if "b" in entry.flags else "NOUN"
    form = entry.english_plural if np.number == "pl" else entry.english
    head = word(form, entry.english, upos, (np, "noun"))
    words = [head]
    if np.adjective is not None:
        english = np.adjective.english
        words = [word(english, english, "ADJ", (np, "adj")).under(head, "amod"), head]
    if np.determiner is not None and np.determiner.english:
        lemma, upos = np.determiner.english, np.determiner.upos
        form = forms.indefinite_article(words[0].form) if lemma == "a" else lemma
        lemma = "this" if lemma == "these" else lemma
        determiner = word(form, lemma, upos, (np, "det"))
        words = [determiner.under(head, np.determiner.relation), *words]
    if np.relative is not None:
        words += clause(np.relative, "sub").under(head, "acl:relcl")
    return Phrase(head, words)


def _part(part: Part, governor: Word) -> list[Word]:
    if part.fixed is not None:
        return _fixed(part, part.fixed, governor)
    inner = noun_phrase(part.noun_phrase)
    # Multiword prepositions ("in front of") hang together by fixed.
    preposition = [
        word(w, w, "NOUN" if w == "front" else "ADP", (part, "prep"))
        for w in part.preposition.english.split()
    ]
    for i, w in enumerate(preposition):
        w.under(preposition[0] if i else inner.head, "fixed" if i else "case")
    relation = "obl" if preposition else "iobj" if part.kind == "iobj" else "obj"
    return [*preposition, *inner.under(governor, relation)]


def _fixed(part: Part, entry: Adverbial, governor: Word) -> list[Word]:
    words = [word(form, form, upos, (part, "fixed")) for form, upos, _ in entry.english]
    for w, (_, _, relation) in zip(words, entry.english, strict=True):
        w.under(governor if w is words[entry.head] else words[entry.head], relation)
    return words


# --- clauses -------------------------------------------------------------------------------------

_MIDDLE = ("habit", "aspect")  # after the first auxiliary, before a full verb
_FINAL = ("iobj", "obj", "obl", "to", "manner", "at", "time")


def _verbs(node: Clause, form: str, inverted: bool) -> list[Word]:
    """Auxiliaries, "not", and the full verb or copula last.

    Each word decides the form of the next ("has" that of "read"). Negation and inversion put do in
    front of a full verb.
    """
    copula = node.verb.english == "be"
    chain = [node.tense.english] if node.tense.english and form != "infinitive" else []
    if not chain and not copula and (node.negated or inverted):
        chain = [("do", "base")]
    shape = node.tense.finite
    words = []
    for lemma, following in chain:
        form_of_it = forms.finite(english_paradigm(lemma, ""), shape, node.subject)
        words.append(word(form_of_it, lemma, "AUX", (node, "aux")))
        shape = following
    if form == "infinitive":
        words.append(word("to", "to", "PART", (node, "zu")))
        shape = "base"
    paradigm = node.verb.english_forms
    finite = shape in ("present", "past")
    last = forms.finite(paradigm, shape, node.subject) if finite else paradigm[shape]
    upos = "AUX" if copula else "VERB"
    words.append(word(last, node.verb.english, upos, (node, "verb")))
    if node.negated:
        # One written word in "cannot", two syntactic ones.
        negation = word("not", "not", "PART", (node, "neg"), glued=words[0].form == "can")
        words.insert(1, negation)
    return words


def clause(node: Clause, form: str) -> Phrase:
    """``form``: main, question (with inversion), sub (subordinate and relative clauses),
    infinitive, or shared (a conjoined verb phrase)."""
    verbs = _verbs(node, form, inverted=form == "question")
    governor = full = next(w for w in verbs if (node, "verb") in w.keys)
    predicate = []
    if node.predicate is not None:
        adjective = node.predicate.english
        governor = word(adjective, adjective, "ADJ", (node, "predicate"))
        predicate = [governor]
        full.under(governor, "cop")
    for w in verbs:
        if w is not full:
            w.under(governor, {"not": "advmod", "to": "mark"}.get(w.lemma, "aux"))

    def parts(kinds: tuple[str, ...]) -> list[Word]:
        chosen = [p for p in node.parts if p is not node.front and p.kind in kinds]
        chosen.sort(key=lambda part: kinds.index(part.kind))
        return [w for part in chosen for w in _part(part, governor)]

    at = 0
    if verbs[0].upos == "AUX":
        at = 2 if verbs[1:] and verbs[1].lemma == "not" else 1
    verbs[at:at] = parts(_MIDDLE)
    words = []
    if isinstance(node.front, Part):
        words = _part(node.front, governor)
    elif node.front is not None:
        words = _linked(node.front, governor, fronted=True)
    if form == "question":
        words.append(verbs.pop(0))
    if form not in ("infinitive", "shared"):
        words += noun_phrase(node.subject, subject=True).under(governor, "nsubj")
    words += [*verbs, *predicate, *_with_particle(node, full, parts(_FINAL))]
    if node.linked is not None and node.linked is not node.front:
        words += _linked(node.linked, governor)
    return Phrase(governor, words)


def _with_particle(node: Clause, full: Word, words: list[Word]) -> list[Word]:
    """Close to the verb, behind a pronoun: "picks up the man", "picks him up"."""
    particle = node.verb.particle
    if not particle:
        return words
    adverb = particle in ("away", "back")
    item = word(particle, particle, "ADV" if adverb else "ADP", (node, "verb"))
    item.under(full, "advmod" if adverb else "compound:prt")
    target = node.argument("obj")
    at = 1 if target is not None and target.is_pronoun and not target.role else 0
    return [*words[:at], item, *words[at:]]


def _linked(item: Linked, governor: Word, fronted: bool = False) -> list[Word]:
    """With its conjunction, and the comma before or behind it."""
    inner = clause(item.clause, item.form)
    words = inner.under(governor, item.relation)
    if item.english and item.form != "infinitive":
        upos, relation = ("CCONJ", "cc") if item.relation == "conj" else ("SCONJ", "mark")
        conjunction = word(item.english, item.english, upos, (item, "mark"))
        words.insert(0, conjunction.under(inner.head, relation))
    comma = word(",", ",", "PUNCT", (item, "comma"), glued=True).under(inner.head, "punct")
    if fronted:
        return [*words, comma]
    return [comma, *words] if item.form == "main" else words


def sentence(made: Sentence) -> list[Word]:
    """All words of the sentence, closed by its punctuation mark and capitalised."""
    phrase = clause(made.tree, made.form)
    end = word(made.stop, made.stop, "PUNCT", (made.tree, "stop"), glued=True)
    words = [*phrase.words, end.under(phrase.head, "punct")]
    words[0].form = words[0].form[0].upper() + words[0].form[1:]
    return words
