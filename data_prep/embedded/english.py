"""English linearisation, with the dependency tree built on the way (Universal Dependencies v2).

Every function returns the words of a phrase in order. Its head is the one word that hangs on no
other yet; attaching the phrase gives it a head and a relation, so the tree is complete when the
root phrase is.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_prep.embedded import forms
from data_prep.embedded.lexicon import PRONOUNS, Adverbial, Noun
from data_prep.embedded.tree import Clause, Key, Linked, NounPhrase, Part, Sentence, Word


def word(form: str, lemma: str, upos: str, *keys: Key, glued: bool = False) -> Word:
    return Word(form, frozenset(keys), lemma, upos, glued=glued)


def _head(phrase: list[Word]) -> Word:
    return next(w for w in phrase if w.head is None)


def _under(phrase: list[Word], governor: Word, relation: str) -> list[Word]:
    _head(phrase).under(governor, relation)
    return phrase


# --- phrases -------------------------------------------------------------------------------------


def noun_phrase(np: NounPhrase, subject: bool = False) -> list[Word]:
    if np.noun is not None:
        return _full(np, np.noun)
    if np.role:
        return [word(np.role, np.role, "PRON", (np, "noun"))]
    row = PRONOUNS[np.person, np.number, np.sex]
    form = row["subject" if subject else "object"]
    return [word(form, row["subject"], "PRON", (np, "noun"))]


def _full(np: NounPhrase, entry: Noun) -> list[Word]:
    upos = "PROPN" if "b" in entry.flags else "NOUN"
    plural = entry.plural or forms.with_s(entry.english)
    head = word(plural if np.number == "pl" else entry.english, entry.english, upos, (np, "noun"))
    words = [head]
    if np.adjective is not None:
        english = np.adjective.english
        words = [word(english, english, "ADJ", (np, "adj")).under(head, "amod"), head]
    if np.determiner is not None and np.determiner.english:
        lemma = np.determiner.english
        form = forms.indefinite_article(words[0].form) if lemma == "a" else lemma
        lemma = "this" if lemma == "these" else lemma
        determiner = word(form, lemma, np.determiner.upos, (np, "det"))
        words = [determiner.under(head, np.determiner.relation), *words]
    if np.relative is not None:
        words += _under(clause(np.relative, "sub"), head, "acl:relcl")
    return words


def _part(part: Part, governor: Word) -> list[Word]:
    if part.fixed is not None:
        return _fixed(part, part.fixed, governor)
    inner = noun_phrase(part.noun_phrase)
    lemma = part.preposition.english
    if not lemma:
        return _under(inner, governor, part.kind if part.kind == "iobj" else "obj")
    preposition = word(lemma, lemma, "ADP", (part, "prep")).under(_head(inner), "case")
    return [preposition, *_under(inner, governor, "obl")]


def _fixed(part: Part, entry: Adverbial, governor: Word) -> list[Word]:
    cells = [cell.split("/") for cell in entry.english.split()]
    words = [word(form, form, upos, (part, "fixed")) for form, upos, _ in cells]
    relations = [relation for _, _, relation in cells]
    head = next(w for w, r in zip(words, relations, strict=True) if r.endswith("*"))
    for w, relation in zip(words, relations, strict=True):
        w.under(governor if w is head else head, relation.removesuffix("*"))
    return words


# --- clauses -------------------------------------------------------------------------------------

_FINAL = ("iobj", "obj", "obl", "to", "manner", "at", "time")


def _verbs(node: Clause, form: str) -> list[Word]:
    """Auxiliaries, "not", and the full verb or copula last.

    Each word decides the form of the next ("has" that of "read"). Negation and inversion put do in
    front of a full verb.
    """
    shape, auxiliary, following = node.tense.finite, node.tense.english, node.tense.following
    copula = node.verb.english == "be"
    if not auxiliary and not copula and (node.negated or form == "question"):
        auxiliary, following = "do", "base"
    words = []
    if form == "infinitive":
        words, shape = [word("to", "to", "PART", (node, "zu"))], "base"
    elif auxiliary:
        finite = forms.finite(forms.english(auxiliary), shape, node.subject)
        words, shape = [word(finite, auxiliary, "AUX", (node, "aux"))], following
    paradigm = forms.english(node.verb.english, node.verb.english_forms)
    tensed = shape in ("present", "past")
    last = forms.finite(paradigm, shape, node.subject) if tensed else paradigm[shape]
    words.append(word(last, node.verb.english, "AUX" if copula else "VERB", (node, "verb")))
    if node.negated:
        # One written word in "cannot", two syntactic ones.
        negation = word("not", "not", "PART", (node, "neg"), glued=words[0].form == "can")
        words.insert(1, negation)
    return words


def clause(node: Clause, form: str) -> list[Word]:
    """``form``: main, question (with inversion), sub (subordinate and relative clauses),
    infinitive, or shared (a conjoined verb phrase)."""
    verbs = _verbs(node, form)
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
    # After the first auxiliary, before a full verb.
    at = 1 + node.negated if verbs[0].upos == "AUX" else 0
    verbs[at:at] = _parts(node, ("habit",), governor)
    words = []
    if isinstance(node.front, Part):
        words = _part(node.front, governor)
    elif node.front is not None:
        words = _linked(node.front, governor, fronted=True)
    if form == "question":
        words.append(verbs.pop(0))
    if form not in ("infinitive", "shared"):
        words += _under(noun_phrase(node.subject, subject=True), governor, "nsubj")
    if node.verb.particle:
        particle = word(node.verb.particle, node.verb.particle, "ADP", (node, "verb"))
        verbs.append(particle.under(full, "compound:prt"))
    words += [*verbs, *predicate, *_parts(node, _FINAL, governor)]
    if node.linked is not None and node.linked is not node.front:
        words += _linked(node.linked, governor)
    return words


def _parts(node: Clause, kinds: Sequence[str], governor: Word) -> list[Word]:
    chosen = [part for part in node.parts if part is not node.front and part.kind in kinds]
    chosen.sort(key=lambda part: kinds.index(part.kind))
    return [w for part in chosen for w in _part(part, governor)]


def _linked(item: Linked, governor: Word, fronted: bool = False) -> list[Word]:
    """With its conjunction, and the comma before or behind it."""
    words = clause(item.clause, item.form)
    head = _head(words)
    head.under(governor, item.relation)
    if item.english and item.form != "infinitive":
        upos, relation = ("CCONJ", "cc") if item.relation == "conj" else ("SCONJ", "mark")
        conjunction = word(item.english, item.english, upos, (item, "mark"))
        words.insert(0, conjunction.under(head, relation))
    comma = word(",", ",", "PUNCT", (item, "comma"), glued=True).under(head, "punct")
    if fronted:
        return [*words, comma]
    return [comma, *words] if item.form == "main" else words


def sentence(made: Sentence) -> list[Word]:
    """All words of the sentence, closed by its punctuation mark and capitalised."""
    words = clause(made.tree, made.form)
    end = word(made.stop, made.stop, "PUNCT", (made.tree, "stop"), glued=True)
    words.append(end.under(_head(words), "punct"))
    words[0].form = words[0].form[0].upper() + words[0].form[1:]
    return words
