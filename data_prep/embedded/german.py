"""German linearisation by topological fields.

A clause is laid out as: pre-field, left bracket, middle field, right bracket, post-field. Main
clauses have the finite verb in the left bracket (after one constituent: verb-second; after none:
questions); subordinate clauses have the conjunction there and all verbs in the right bracket, the
finite one last. The middle field is ordered by rank.
"""

from __future__ import annotations

from typing import NamedTuple

from data_prep.embedded import forms
from data_prep.embedded.lexicon import Noun, german_paradigm
from data_prep.embedded.tree import Clause, Key, Linked, NounPhrase, Part, Sentence, Word


def word(form: str, *keys: Key) -> Word:
    return Word(form, frozenset(keys))


def _mark(form: str, *keys: Key) -> Word:
    return Word(form, frozenset(keys), glued=True)


# --- phrases -------------------------------------------------------------------------------------


def noun_phrase(np: NounPhrase, case: str, negation: Key | None = None) -> list[Word]:
    """``negation``: of what fuses with the indefinite article, or its lack, into kein."""
    if np.noun is None:
        return [word(forms.pronoun(np, case), (np, "noun"))]
    words = _full(np, np.noun, case, negation)
    if np.relative is not None:
        words += [_mark(","), *clause(np.relative, "sub"), _mark(",")]
    return words


def _full(np: NounPhrase, entry: Noun, case: str, negation: Key | None) -> list[Word]:
    agreement = (entry.gender, np.number, case)
    words = []
    declension = np.determiner.adjective if np.determiner else "strong"
    if np.determiner is not None and np.determiner.german:
        words = [word(forms.determiner(np.determiner, *agreement), (np, "det"))]
    if negation is not None:
        keys = [*(words[0].keys if words else ()), negation]
        words, declension = [word(forms.determiner(forms.KEIN, *agreement), *keys)], "mixed"
    if np.adjective is not None:
        words.append(word(forms.adjective(np.adjective.stem, declension, *agreement), (np, "adj")))
    return [*words, word(forms.noun(entry, np.number, case), (np, "noun"))]


def _part(part: Part, negation: Key | None = None) -> list[Word]:
    if part.fixed is not None:
        return [word(form, (part, "fixed")) for form in part.fixed.german]
    _, preposition, case = part.preposition
    words = noun_phrase(part.noun_phrase, case, negation)
    if not preposition:
        return words
    fused = forms.CONTRACTIONS.get((preposition, words[0].form))
    if fused and not part.noun_phrase.is_pronoun:
        return [Word(fused, words[0].keys | {(part, "prep")}), *words[1:]]
    return [word(preposition, (part, "prep")), *words]


# --- the verbal complex --------------------------------------------------------------------------


class _Verbs(NamedTuple):
    """The finite verb, the non-finite rest of the right bracket, and the separable prefix."""

    finite: list[Word]
    rest: list[Word]
    prefix: str = ""


def _verbs(node: Clause, form: str) -> _Verbs:
    verb, tense = node.verb, node.tense
    full, auxiliary = (node, "verb"), (node, "aux")
    if form == "infinitive":
        zu = (node, "zu")
        if verb.prefix:  # one word: aufzumachen
            return _Verbs([], [word(f"{verb.prefix}zu{verb.german}", zu, full)])
        return _Verbs([], [word("zu", zu), word(verb.german, full)])
    if not tense.german:
        only = forms.finite(verb.german_forms, tense.finite, node.subject)
        return _Verbs([word(only, full, auxiliary)], [], verb.prefix)
    lemma, last = tense.german, "base"
    if tense.german == "perfect":
        lemma, last = "sein" if "*" in verb.tenses else "haben", "participle"
    finite = forms.finite(german_paradigm(lemma, ""), tense.finite, node.subject)
    rest = word(verb.prefix + verb.german_forms[last], full)
    return _Verbs([word(finite, auxiliary)], [rest])


# --- the middle field ----------------------------------------------------------------------------

# Pronouns first, then subject, time, definite objects, negation, manner, place, indefinite and
# prepositional objects, direction.
_RANKS = {"time": 6, "habit": 6, "aspect": 10, "manner": 12, "at": 13, "obl": 15, "to": 16}
_NEGATION, _PREDICATE = 11, 20


def _middle_field(node: Clause, with_subject: bool) -> list[Word]:
    items: list[tuple[int, list[Word]]] = []
    if with_subject:
        items.append((0 if node.subject.is_pronoun else 2, noun_phrase(node.subject, "nom")))
    negation = (node, "neg") if node.negated else None
    for part in node.parts:
        if part is not node.front:
            fused = negation if _takes_kein(part) else None
            items.append((_rank(node, part), _part(part, fused)))
            negation = None if fused else negation
    if negation is not None:
        items.append((_NEGATION, [word("nicht", negation)]))
    if node.predicate is not None:  # without an ending
        items.append((_PREDICATE, [word(node.predicate.german, (node, "predicate"))]))
    return [w for _, words in sorted(items, key=lambda item: item[0]) for w in words]


def _rank(node: Clause, part: Part) -> int:
    """Pronouns early, accusative before dative; nouns later, dative before accusative."""
    np, case = part.noun_phrase, part.preposition.case
    if part.kind not in ("obj", "iobj"):
        # "nicht" follows the definite object, and the time stays next to it
        return 9 if part.kind == "time" and node.negated else _RANKS[part.kind]
    if np.is_pronoun:
        return 3 if case == "acc" else 4
    if case == "dat":
        return 7
    return 8 if np.definite else 14


def _takes_kein(part: Part) -> bool:
    """Nicht ein Buch, nicht Milch: kein Buch, keine Milch."""
    np = part.noun_phrase
    if part.kind != "obj" or np.definite:
        return False
    return np.determiner is None or np.determiner.german in ("", "ein")


# --- clauses -------------------------------------------------------------------------------------


def clause(node: Clause, form: str) -> list[Word]:
    """``form`` as in the English linearisation."""
    verbs = _verbs(node, form)
    opens = form == "main" and node.front is None  # the subject does
    has_subject = form not in ("infinitive", "shared")
    words = noun_phrase(node.subject, "nom") if opens else _front(node)
    middle = _middle_field(node, has_subject and not opens)
    if form == "sub":
        if verbs.prefix:  # it joins a finite full verb: weil er aufsteht
            verbs.finite[0].form = verbs.prefix + verbs.finite[0].form
        words += [*middle, *verbs.rest, *verbs.finite]
    else:
        prefix = [word(verbs.prefix, (node, "verb"))] if verbs.prefix else []
        words += [*verbs.finite, *middle, *verbs.rest, *prefix]
    if node.linked is not None and node.linked is not node.front:
        comma = [] if node.linked.german == "und" else [_mark(",", (node.linked, "comma"))]
        words += [*comma, *_linked(node.linked)]
    return words


def _front(node: Clause) -> list[Word]:
    if isinstance(node.front, Linked):
        return [*_linked(node.front), _mark(",", (node.front, "comma"))]
    return [] if node.front is None else _part(node.front)


def _linked(item: Linked) -> list[Word]:
    """The conjunction ("um" opens infinitives of purpose) and its clause."""
    keys = ((item, "mark"), (item.clause, "zu"))
    conjunction = [word(item.german, *keys)] if item.german else []
    return [*conjunction, *clause(item.clause, item.form)]


def sentence(made: Sentence) -> list[Word]:
    """All words, with doubled commas reduced, closed by the mark and capitalised."""
    words = [*clause(made.tree, made.form), _mark(made.stop, (made.tree, "stop"))]
    following = [*words[1:], words[0]]
    marks = (",", made.stop)
    kept = [
        w
        for w, after in zip(words, following, strict=True)
        if not (w.form == "," and after.form in marks)
    ]
    kept[0].form = kept[0].form[0].upper() + kept[0].form[1:]
    return kept
