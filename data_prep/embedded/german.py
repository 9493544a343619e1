"""German linearisation by topological fields.

A clause is laid out as: pre-field, left bracket, middle field, right bracket, post-field. Main
clauses have the finite verb in the left bracket (after one constituent: verb-second; after none:
questions and imperatives); subordinate clauses have the conjunction there and all verbs in the
right bracket, the finite one last. The middle field is ordered by rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded import german_forms as forms
from data_prep.embedded.nodes import (
    AdverbialUse,
    Argument,
    Clause,
    Key,
    Linked,
    Modifier,
    NounPhrase,
    Part,
    Word,
)

_WHO = {"nom": "wer", "acc": "wen", "dat": "wem"}


def word(form: str, *keys: Key) -> Word:
    return Word(form, frozenset(keys))


def _mark(form: str, *keys: Key) -> Word:
    return Word(form, frozenset(keys), glued=True)


# --- phrases -------------------------------------------------------------------------------------


def noun_phrase(
    np: NounPhrase, case: str, negated_by: Key | None = None, extraposed: bool = False
) -> list[Word]:
    """``negated_by``: the negation that fuses with an indefinite determiner into kein;
    ``extraposed``: the relative clause stands elsewhere."""
    words = [_pronoun(np, case)] if np.noun is None else _full(np, case, negated_by)
    if np.relative is not None and not extraposed:
        words += _relative(np.relative)
    return words


def _relative(node: Clause) -> list[Word]:
    return [_mark(","), *clause(node, "relative"), _mark(",")]


def _pronoun(np: NounPhrase, case: str) -> Word:
    if np.role and np.gender:
        form = forms.relative_pronoun(np.gender, np.number, case)
    elif np.role:
        form = _WHO[case] if np.role == "who" else "was"
    else:
        form = forms.pronoun(np.person, np.number, np.gender, case)
    return word(form, (np, "noun"))


def _full(np: NounPhrase, case: str, negated_by: Key | None) -> list[Word]:
    """A name as the owner goes before (Annas Auto), other owners behind (das Auto des Lehrers)."""
    assert np.noun is not None
    owner = noun_phrase(np.possessor, "gen") if np.possessor else []
    named = np.possessor is not None and np.possessor.noun is not None and np.possessor.noun.proper
    stem = np.determiner.german if np.determiner else ""
    stem = "der" if owner and not named else stem
    keys: list[Key] = [(np, "det")]
    if negated_by is not None:
        stem = "kein"
        keys.append(negated_by)
    gender, number = np.noun.gender, np.number
    words = owner if named else []
    if stem and not named:
        words.append(word(forms.determiner(stem, gender, number, case), *keys))
    if np.modifier is not None:
        form = forms.adjective(np.modifier.adjective.german, stem, gender, number, case)
        words += _adjective(np.modifier, form)
    words.append(word(forms.noun(np.noun, number, case), (np, "noun")))
    return words if named else [*words, *owner]


def _adjective(modifier: Modifier, form: str) -> list[Word]:
    very = [word("sehr", (modifier, "very"))] if modifier.very else []
    return [*very, word(form, (modifier, "adj"))]


def _part(part: Part, negated_by: Key | None = None, extraposed: bool = False) -> list[Word]:
    if isinstance(part, AdverbialUse):
        return [
            word(form, *((part, str(i)) for i in indices)) for form, indices in part.entry.german
        ]
    np = part.noun_phrase
    words = noun_phrase(np, part.case, negated_by, extraposed)
    if not part.german:
        return words
    # Only the article contracts, and not where a restrictive relative clause needs it.
    fused = forms.CONTRACTIONS.get((part.german, words[0].form))
    if fused and np.noun is not None and np.relative is None:
        return [Word(fused, words[0].keys | {(part, "prep")}), *words[1:]]
    return [word(part.german, (part, "prep")), *words]


# --- the verbal complex --------------------------------------------------------------------------


@dataclass
class _Verbs:
    """The finite verb, the non-finite rest of the right bracket, and the separable prefix."""

    finite: list[Word]
    rest: list[Word]
    prefix: list[Word]

    def final(self) -> list[Word]:
        """All in the right bracket: the prefix joins a finite full verb (weil er aufsteht)."""
        if self.prefix:
            return [Word(self.prefix[0].form + self.finite[0].form, self.finite[0].keys)]
        return [*self.rest, *self.finite]


def _verbs(node: Clause, form: str) -> _Verbs:
    verb, person, number = node.verb, node.subject.person, node.subject.number
    full, auxiliary = (node, "verb"), (node, "aux")
    if form == "infinitive" and verb:  # "um" is the conjunction's business
        zu = forms.zu_infinitive(verb)
        keys = [(node, "zu"), full]
        last = [word(zu[0], *keys)] if len(zu) == 1 else list(map(word, zu, keys))
        return _Verbs([], last, [])
    prefix = [word(verb.prefix, full, auxiliary)] if verb and verb.prefix else []
    if form == "imperative" and verb:
        return _Verbs([word(forms.imperative(verb), full, auxiliary)], [], prefix)
    german, finite = node.tense.german, node.tense.finite
    keeps_preterite = verb is None or "P" in verb.aspect
    if form == "question" and not german and finite == "past" and not keeps_preterite:
        german, finite = "perfect", "present"  # as is idiomatic in speech
    if not german:
        lemma, parts = (verb.german, verb.strong) if verb else ("sein", None)
        first = word(forms.finite(lemma, parts, finite, person, number), full, auxiliary)
        return _Verbs([first], [], prefix)
    infinitive = word(forms.infinitive(verb) if verb else "sein", full)
    if german == "bare":  # a conjunct that shares the auxiliary as well
        return _Verbs([], [infinitive], [])
    if german == "perfect":
        german = verb.auxiliary if verb else "sein"
        infinitive.form = forms.participle(verb) if verb else "gewesen"
    elif node.negated and node.tense.negated:
        german = node.tense.negated
    return _Verbs(
        [word(forms.finite(german, None, finite, person, number), auxiliary)], [infinitive], []
    )


def _has_right_bracket(node: Clause) -> bool:
    """In a main clause; the right bracket of other clauses always holds a verb."""
    return bool(node.tense.german) or (node.verb is not None and bool(node.verb.prefix))


# --- the middle field ----------------------------------------------------------------------------

# Pronouns first, then subject, time, definite objects, negation, manner, place, indefinite and
# prepositional objects, direction.
_RANKS = {
    "please": 5, "time": 6, "habit": 6, "aspect": 10, "manner": 12, "place": 13,
    "oblique": 15, "dir": 16,
}  # fmt: skip
_NEGATION, _PREDICATE = 11, 20


def _middle_field(node: Clause, with_subject: bool) -> list[Word]:
    items: list[tuple[int, list[Word]]] = []
    if with_subject:
        rank = 0 if node.subject.is_pronoun else 2
        items.append((rank, noun_phrase(node.subject, "nom")))
    if node.verb is not None and node.verb.reflexive:
        subject = node.subject
        form = forms.pronoun(subject.person, subject.number, subject.gender or "m", "reflexive")
        items.append((1, [word(form, (node, "verb"), (node, "aux"))]))
    negation = (node, "neg")
    fused = _kein_target(node)
    for part in node.parts:
        if part is not node.front:
            negated_by = negation if part is fused else None
            extraposed = _extraposed(node, part) is not None
            items.append((_rank(node, part), _part(part, negated_by, extraposed)))
    if node.negated and fused is None:
        items.append((_NEGATION, [word("nicht", negation)]))
    if node.predicate is not None:
        # Predicative adjectives have no ending.
        items.append((_PREDICATE, _adjective(node.predicate, node.predicate.adjective.german)))
    return [w for _, words in sorted(items, key=lambda item: item[0]) for w in words]


def _rank(node: Clause, part: Part) -> int:
    """Pronouns early, accusative before dative; nouns later, dative before accusative."""
    if isinstance(part, Argument) and not part.german:
        np, kind, case = part.noun_phrase, part.kind, part.case
        if np.is_pronoun:
            return 3 if case == "acc" else 4
        if case == "dat":
            return 15 if kind == "oblique" else 7  # gehört nicht dem Lehrer
        return 8 if np.definite else 14
    if part.kind == "time" and node.negated:
        return 9  # "nicht" follows the definite object, and the time stays next to it
    return _RANKS[part.kind]


def _kein_target(node: Clause) -> Argument | None:
    """The indefinite object with which the negation fuses into kein."""
    bare = (p for p in node.parts if isinstance(p, Argument) and not p.german and p.kind != "iobj")
    found = (part for part in bare if node.negated and not part.noun_phrase.definite)
    return next(found, None)


def _extraposed(node: Clause, part: Part) -> Clause | None:
    """The object's relative clause moves behind the right bracket: Er hat das Buch gelesen, das
    sie ihm gab."""
    movable = isinstance(part, Argument) and part.kind == "obj" and _has_right_bracket(node)
    return part.noun_phrase.relative if movable and isinstance(part, Argument) else None


# --- clauses -------------------------------------------------------------------------------------


def clause(node: Clause, form: str) -> list[Word]:
    """``form`` as in the English linearisation."""
    verbs = _verbs(node, form)
    subjectless = form in ("infinitive", "imperative", "shared")
    opens = not subjectless and form not in ("sub", "question")
    first = node.front or (node.subject if opens else None)
    middle = _middle_field(node, not subjectless and first is not node.subject)
    if form in ("sub", "relative"):
        words = [*_front(node, first), *middle, *verbs.final()]
    else:
        words = [*_front(node, first), *verbs.finite, *middle, *verbs.rest, *verbs.prefix]
    return [*words, *_post_field(node)]


def _front(node: Clause, first: NounPhrase | Part | Linked | None) -> list[Word]:
    if first is None:
        return []
    if isinstance(first, Linked):
        return [*_linked(node, first)[1:], _mark(",", (first, "comma"))]
    return noun_phrase(first, "nom") if isinstance(first, NounPhrase) else _part(first)


def _post_field(node: Clause) -> list[Word]:
    moved = [_extraposed(node, part) for part in node.parts if part is not node.front]
    words = [w for relative in moved if relative is not None for w in _relative(relative)]
    for item in node.linked:
        if item is not node.front:
            words += _linked(node, item)
    return words


def _linked(node: Clause, item: Linked) -> list[Word]:
    """A comma, the conjunction ("um" opens infinitives of purpose) and its clause."""
    comma = [] if item.german == "und" else [_mark(",", (item, "comma"))]
    conjunction = [word(item.german, (item, "mark"))] if item.german else []
    return [*comma, *conjunction, *clause(item.clause, node.form_of(item))]


def sentence(node: Clause, form: str, stop: str) -> list[Word]:
    """All words, with doubled commas reduced, closed by the mark and capitalised."""
    words = [*clause(node, form), _mark(stop, (node, "stop"))]
    kept = [
        w
        for w, following in zip(words, [*words[1:], words[0]], strict=True)
        if not (w.form == "," and following.form in (",", ".", "?", "!"))
    ]
    kept[0].form = kept[0].form[0].upper() + kept[0].form[1:]
    return kept
