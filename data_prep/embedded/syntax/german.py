"""German linearisation by topological fields.

A clause is laid out as: pre-field, left bracket, middle field, right bracket, post-field. Main
clauses have the finite verb in the left bracket (after one constituent: verb-second; after none:
questions and imperatives); subordinate clauses have the conjunction there and all verbs in the
right bracket, the finite one last. The middle field is ordered by rank (see `_rank`).
"""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded.morphology import nominal, verbal
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


@dataclass(eq=False)
class Word:
    form: str
    keys: frozenset[Key]
    glued: bool = False


def word(form: str, *keys: Key) -> Word:
    return Word(form, frozenset(keys))


def mark(form: str, *keys: Key) -> Word:
    return Word(form, frozenset(keys), glued=True)


# --- noun phrases ------------------------------------------------------------------------------


def noun_phrase(np: NounPhrase, case: str, negated_by: Key | None = None) -> list[Word]:
    """``negated_by``: the negation that fuses with an indefinite determiner into kein."""
    words = _pronoun(np, case) if np.noun is None else _full(np, case, negated_by)
    for conjunct in np.conjuncts:
        words += [word(np.conjunction[1], (np, "and")), *noun_phrase(conjunct, case)]
    return words


def _pronoun(np: NounPhrase, case: str) -> list[Word]:
    key = (np, "noun")
    if np.role and np.gender:
        return [word(nominal.relative_pronoun(np.gender, np.number, case), key)]
    if np.role == "who":
        return [word(nominal.WHO[case], key)]
    if np.role == "what":
        return [word("was", key)]
    gender = np.gender if np.person == 3 and np.number == "sg" else ""
    return [word(nominal.personal_pronoun(np.person, np.number, gender, case), key)]


def _full(np: NounPhrase, case: str, negated_by: Key | None) -> list[Word]:
    assert np.noun is not None
    entry, number = np.noun, np.number
    stem = np.determiner.german if np.determiner else ""
    keys: tuple[Key, ...] = ((np, "det"),)
    if np.possessor is not None and not np.possessor.noun_is_proper:
        stem = "der"
    if negated_by is not None:
        stem, keys = "kein", ((np, "det"), negated_by)
    name_owner = np.possessor is not None and np.possessor.noun_is_proper
    words: list[Word] = []
    if name_owner and np.possessor is not None:
        words += noun_phrase(np.possessor, "gen")
    elif stem:
        words.append(word(nominal.determiner(stem, entry.gender, number, case), *keys))
    for modifier in np.modifiers:
        form = nominal.adjective(modifier.adjective.german, stem, entry.gender, number, case)
        words += [*_intensifier(modifier), word(form, (modifier, "adj"))]
    words.append(word(nominal.noun(entry, number, case), (np, "noun")))
    if np.possessor is not None and not name_owner:
        words += noun_phrase(np.possessor, "gen")
    if np.relative is not None:
        words += [mark(","), *clause(np.relative, "relative"), mark(",")]
    return words


def _intensifier(modifier: Modifier) -> list[Word]:
    if not modifier.intensifier:
        return []
    german = {"very": "sehr", "too": "zu", "so": "so"}[modifier.intensifier]
    return [word(german, (modifier, "very"))]


def adjective_phrase(modifier: Modifier) -> list[Word]:
    """Predicative: uninflected."""
    entry = modifier.adjective
    form = entry.german_comparative if modifier.comparative else entry.german
    words = [*_intensifier(modifier), word(form, (modifier, "adj"))]
    if modifier.than is not None:
        words += [word("als", (modifier, "than")), *noun_phrase(modifier.than, "nom")]
    return words


def prep_phrase(pp: PrepPhrase) -> list[Word]:
    inner = noun_phrase(pp.noun_phrase, pp.case)
    if not pp.german:
        return inner
    preposition = word(pp.german, (pp, "prep"))
    if contracts(pp):
        fused = nominal.CONTRACTIONS.get((pp.german, inner[0].form))
        if fused:
            return [Word(fused, preposition.keys | inner[0].keys), *inner[1:]]
    return [preposition, *inner]


def contracts(pp: PrepPhrase) -> bool:
    """Only the article contracts, and not where a restrictive relative clause needs it."""
    np = pp.noun_phrase
    return np.noun is not None and np.relative is None


def adverbial(use: AdverbialUse) -> list[Word]:
    return [
        Word(form, frozenset((use, str(i)) for i in indices)) for form, indices in use.entry.german
    ]


# --- the verbal complex ----------------------------------------------------------------------------


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


# --- clauses -----------------------------------------------------------------------------------


def clause(node: Clause, form: str) -> list[Word]:
    """``form`` as in the English linearisation."""
    if form == "infinitive":
        return _infinitive_clause(node)
    if form == "imperative":
        return _imperative(node)
    verbs = verbal_complex(node, form)
    front = _front(node, form)
    middle = _middle(node, with_subject=not _subject_is_first(node, form) and form != "shared")
    if form in ("sub", "relative"):
        words = [*front, *middle, *verbs.final()]
    else:
        finite = [verbs.finite] if verbs.finite.form else []
        words = [*front, *finite, *middle, *verbs.rest, *verbs.prefix]
    return [*words, *_post_field(node)]


def _subject_is_first(node: Clause, form: str) -> bool:
    """Is the subject in the pre-field (or is it a relative pronoun, or an asked "who")?"""
    if node.front is node.subject:
        return True
    if form in ("sub", "question", "shared"):
        return False
    return node.front is None


def _front(node: Clause, form: str) -> list[Word]:
    if form == "shared":
        return []
    front = node.front
    if node.existential:  # In diesem Dorf gibt es ...
        return [w for a in node.adjuncts if isinstance(a, PrepPhrase) for w in prep_phrase(a)]
    if front is None:
        return noun_phrase(node.subject, "nom") if _subject_is_first(node, form) else []
    if isinstance(front, Subordinate):
        return [*subordinate(front), mark(",", (front, "comma"))]
    if isinstance(front, WhAdverb):
        return [word(front.german, (front, "wh"))]
    if isinstance(front, PrepPhrase):
        return prep_phrase(front)
    if isinstance(front, AdverbialUse):
        return adverbial(front)
    return noun_phrase(front, _case_of(node, front))


def _case_of(node: Clause, np: NounPhrase) -> str:
    if np is node.subject:
        return "nom"
    return "dat" if np is node.indirect or node.dative_direct else "acc"


def _infinitive_clause(node: Clause) -> list[Word]:
    """zu-infinitive; "um" is the conjunction's business."""
    middle = _middle(node, with_subject=False)
    if node.verb is None:
        zu: tuple[str, ...] = ("zu", "sein")
    else:
        zu = verbal.zu_infinitive(node.verb)
    keys = ((node, "zu"), (node, "verb"))
    verbs = (
        [word(zu[0], *keys)]
        if len(zu) == 1
        else [
            word(zu[0], keys[0]),
            word(zu[1], keys[1]),
        ]
    )
    return [*middle, *verbs, *_post_field(node)]


def _imperative(node: Clause) -> list[Word]:
    assert node.verb is not None
    first = word(verbal.imperative(node.verb), (node, "verb"), (node, "aux"))
    prefix = [word(node.verb.prefix, (node, "verb"))] if node.verb.prefix else []
    return [first, *_middle(node, with_subject=False), *prefix, *_post_field(node)]


def _post_field(node: Clause) -> list[Word]:
    words: list[Word] = []
    for item in node.subordinates:
        if item is not node.front:
            words += [mark(",", (item, "comma")), *subordinate(item)]
    if node.coordinated is not None:
        words += _coordination(node.coordinated)
    return words


def subordinate(item: Subordinate) -> list[Word]:
    """A dependent clause without its commas; "um" opens infinitives of purpose."""
    form = "infinitive" if item.relation == "xcomp" or item.english == "to" else "sub"
    opening = [word(item.german, (item, "mark"))] if item.german else []
    return [*opening, *clause(item.clause, form)]


def _coordination(item: Coordination) -> list[Word]:
    comma = [mark(",", (item, "comma"))] if item.german_comma else []
    inner = clause(item.clause, "shared" if item.shared_subject else "main")
    return [*comma, word(item.german, (item, "and")), *inner]


# --- the middle field ------------------------------------------------------------------------------


def _middle(node: Clause, with_subject: bool) -> list[Word]:
    items: list[tuple[float, list[Word]]] = []
    if node.existential:
        items.append((0.0, [word("es", (node, "there"))]))
    elif with_subject:
        rank = 0.0 if node.subject.is_pronoun else 2.0
        items.append((rank, noun_phrase(node.subject, "nom")))
    if node.verb is not None and node.verb.reflexive:
        person, number = node.subject.agreement_person, node.subject.agreement_number
        reflexive = nominal.reflexive(person, number)
        items.append((1.0, [word(reflexive, (node, "verb"), (node, "aux"))]))
    fused = _kein_target(node)
    items += _argument_items(node, fused)
    if not node.existential:
        items += [_adjunct_item(node, a) for a in node.adjuncts if a is not node.front]
    if node.modal is not None and node.modal.shape == "gern":
        items.append((12.0, [word("gern", (node, "aux"))]))
    if node.negated and fused is None:
        items.append((11.0, [word("nicht", (node, "neg"))]))
    if node.predicate is not None:
        items.append((20.0, _predicate(node, fused)))
    return [w for _, words in sorted(items, key=lambda item: item[0]) for w in words]


def _kein_target(node: Clause) -> NounPhrase | None:
    """The indefinite phrase with which the negation fuses into kein."""
    if not node.negated:
        return None
    candidates = [node.direct, node.predicate, node.subject if node.existential else None]
    for np in candidates:
        if isinstance(np, NounPhrase) and np.noun is not None and not np.definite:
            return np
    return None


def _argument_items(node: Clause, fused: NounPhrase | None) -> list[tuple[float, list[Word]]]:
    items = []
    negation = (node, "neg")
    for np in node.arguments:
        if np is node.front:
            continue
        case = _case_of(node, np)
        words = noun_phrase(np, case, negation if np is fused else None)
        items.append((_argument_rank(node, np, case), words))
    if node.existential:
        fused_key = negation if node.subject is fused else None
        items.append((14.0, noun_phrase(node.subject, "acc", fused_key)))
    for pp in node.prepositional:
        if pp is not node.front:
            items.append(
                (
                    3.0
                    if not pp.german and pp.noun_phrase.is_pronoun
                    else 8.0
                    if not pp.german and pp.noun_phrase.definite
                    else 14.0
                    if not pp.german
                    else 15.0,
                    prep_phrase(pp),
                )
            )
    return items


def _argument_rank(node: Clause, np: NounPhrase, case: str) -> float:
    """Pronouns early, accusative before dative; nouns later, dative before accusative."""
    if np.is_pronoun:
        return 3.0 if case == "acc" else 4.0
    if case == "dat":
        return 7.0
    return 8.0 if np.definite else 14.0


def _adjunct_item(node: Clause, item: PrepPhrase | AdverbialUse) -> tuple[float, list[Word]]:
    if isinstance(item, PrepPhrase):
        return (13.0 if item.kind == "place" else 16.0), prep_phrase(item)
    kind = item.kind
    rank = _ADVERB_RANKS[kind]
    if kind == "time" and node.negated:
        rank = 9.0  # "nicht" follows the definite object, and the time stays next to it
    if kind == "yet" and _kein_target(node) is not None:
        rank = 13.9  # "noch kein"
    return rank, adverbial(item)


_ADVERB_RANKS = {
    "sentence": 5.0,
    "please": 5.0,
    "time": 6.0,
    "just": 6.0,
    "still": 6.0,
    "freq": 10.0,
    "aspect": 10.0,
    "yet": 10.5,
    "prompt": 9.5,
    "manner": 12.0,
    "place": 13.0,
    "dir": 16.0,
}


def _predicate(node: Clause, fused: NounPhrase | None) -> list[Word]:
    value = node.predicate
    if isinstance(value, Modifier):
        return adjective_phrase(value)
    if isinstance(value, PrepPhrase):
        return prep_phrase(value)
    assert isinstance(value, NounPhrase)
    return noun_phrase(value, "nom", (node, "neg") if value is fused else None)


# --- sentences -----------------------------------------------------------------------------------


def sentence(node: Clause, form: str, stop: str) -> list[Word]:
    """All words, with doubled commas reduced, closed by the mark and capitalised."""
    words = [*clause(node, form), mark(stop, (node, "stop"))]
    kept = [
        w
        for w, following in zip(words, [*words[1:], None], strict=True)
        if not (w.form == "," and following is not None and following.form in (",", ".", "?", "!"))
    ]
    kept[0].form = kept[0].form[0].upper() + kept[0].form[1:]
    return kept
