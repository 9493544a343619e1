"""German linearisation by topological fields.

A clause is laid out as: pre-field, left bracket, middle field, right bracket, post-field. Main
clauses have the finite verb in the left bracket (after one constituent: verb-second; after none:
questions); subordinate clauses have the conjunction there and all verbs in the right bracket, the
finite one last. The middle field is ordered by rank.
"""

from __future__ import annotations

from data_prep.embedded import forms
from data_prep.embedded.lexicon import DETERMINERS, Noun
from data_prep.embedded.tree import Clause, Key, Linked, NounPhrase, Part, Sentence, Word


def word(form: str, *keys: Key) -> Word:
    return Word(form, frozenset(keys), glued=form in (",", ".", "?"))


# --- phrases -------------------------------------------------------------------------------------


def noun_phrase(np: NounPhrase, case: str) -> list[Word]:
    if np.noun is None:
        return [word(forms.pronoun(np, case), (np, "noun"))]
    words = _full(np, np.noun, case)
    if np.relative is not None:
        words += [word(","), *clause(np.relative, "sub"), word(",")]
    return words


def _full(np: NounPhrase, entry: Noun, case: str) -> list[Word]:
    agreement = (entry.gender, np.number, case)
    words = []
    determiner = np.determiner or DETERMINERS[""]
    if determiner.german:
        ending = forms.ending(determiner.declension, *agreement)
        words = [word(determiner.german + ending, (np, "det"))]
    if np.adjective is not None:
        ending = forms.ending(determiner.adjective, *agreement)
        words.append(word(np.adjective.stem + ending, (np, "adj")))
    return [*words, word(forms.noun(entry, np.number, case), (np, "noun"))]


def _part(part: Part) -> list[Word]:
    if part.fixed is not None:
        return [word(form, (part, "fixed")) for form in part.fixed.german.split()]
    _, preposition, case = part.preposition
    words = noun_phrase(part.noun_phrase, case)
    if not preposition:
        return words
    fused = forms.CONTRACTIONS.get((preposition, words[0].form))
    if fused and part.noun_phrase.noun is not None:
        return [Word(fused, words[0].keys | {(part, "prep")}), *words[1:]]
    return [word(preposition, (part, "prep")), *words]


# --- the verbal complex --------------------------------------------------------------------------


def _verbs(node: Clause, form: str) -> tuple[list[Word], list[Word], str]:
    """The finite verb, the non-finite rest of the right bracket, and the separable prefix."""
    verb, tense = node.verb, node.tense
    paradigm = forms.german(verb.german, verb.german_forms)
    full, auxiliary = (node, "verb"), (node, "aux")
    if form == "infinitive":
        zu = (node, "zu")
        if verb.prefix:  # one word: aufzumachen
            return [], [word(f"{verb.prefix}zu{verb.german}", zu, full)], ""
        return [], [word("zu", zu), word(verb.german, full)], ""
    if not tense.german:
        only = forms.finite(paradigm, tense.finite, node.subject)
        return [word(only, full, auxiliary)], [], verb.prefix
    lemma, last = tense.german, "base"
    if tense.german == "perfect":
        lemma, last = "sein" if "*" in verb.tenses else "haben", "participle"
    finite = forms.finite(forms.german(lemma), tense.finite, node.subject)
    rest = word(verb.prefix + paradigm[last], full)
    return [word(finite, auxiliary)], [rest], ""


# --- the middle field ----------------------------------------------------------------------------

# Pronouns first, then subject, time, objects, negation, manner, place, prepositional objects, goal.
_RANKS = {"time": 6, "habit": 6, "manner": 12, "at": 13, "obl": 15, "to": 16}
_NEGATION, _PREDICATE = 11, 20


def _middle_field(node: Clause, with_subject: bool) -> list[Word]:
    items: list[tuple[int, list[Word]]] = []
    if with_subject:
        items.append((0 if node.subject.noun is None else 2, noun_phrase(node.subject, "nom")))
    items += [(_rank(part), _part(part)) for part in node.parts if part is not node.front]
    if node.negated:
        items.append((_NEGATION, [word("nicht", (node, "neg"))]))
    if node.predicate is not None:  # without an ending
        items.append((_PREDICATE, [word(node.predicate.german, (node, "predicate"))]))
    return [w for _, words in sorted(items, key=lambda item: item[0]) for w in words]


def _rank(part: Part) -> int:
    """Pronouns early, accusative before dative; nouns later, dative before accusative."""
    if part.kind not in ("obj", "iobj"):
        return _RANKS[part.kind]
    accusative = part.preposition.case == "acc"
    if part.noun_phrase.noun is None:
        return 3 if accusative else 4
    return 8 if accusative else 7


# --- clauses -------------------------------------------------------------------------------------


def clause(node: Clause, form: str) -> list[Word]:
    """``form`` as in the English linearisation."""
    finite, rest, prefix = _verbs(node, form)
    opens = form == "main" and node.front is None  # the subject does
    has_subject = form not in ("infinitive", "shared")
    words = noun_phrase(node.subject, "nom") if opens else _front(node)
    middle = _middle_field(node, has_subject and not opens)
    if form == "sub":
        if prefix:  # it joins a finite full verb: weil er aufsteht
            finite[0].form = prefix + finite[0].form
        words += [*middle, *rest, *finite]
    else:
        words += [*finite, *middle, *rest]
        if prefix:
            words.append(word(prefix, (node, "verb")))
    if node.linked is not None and node.linked is not node.front:
        comma = [] if node.linked.german == "und" else [word(",", (node.linked, "comma"))]
        words += [*comma, *_linked(node.linked)]
    return words


def _front(node: Clause) -> list[Word]:
    if isinstance(node.front, Linked):
        return [*_linked(node.front), word(",", (node.front, "comma"))]
    return [] if node.front is None else _part(node.front)


def _linked(item: Linked) -> list[Word]:
    """The conjunction ("um" opens infinitives of purpose) and its clause."""
    keys = ((item, "mark"), (item.clause, "zu"))
    conjunction = [word(item.german, *keys)] if item.german else []
    return [*conjunction, *clause(item.clause, item.form)]


def sentence(made: Sentence) -> list[Word]:
    """All words, with doubled commas reduced, closed by the mark and capitalised."""
    words = [*clause(made.tree, made.form), word(made.stop, (made.tree, "stop"))]
    kept = [
        w
        for w, after in zip(words, [*words[1:], words[0]], strict=True)
        if not (w.form == "," and after.glued)
    ]
    kept[0].form = kept[0].form[0].upper() + kept[0].form[1:]
    return kept
