"""German noun, adjective, prepositional and adverbial phrases."""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded.morphology import nominal
from data_prep.embedded.syntax.nodes import (
    AdverbialUse,
    Clause,
    Key,
    Modifier,
    NounPhrase,
    PrepPhrase,
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


def noun_phrase(
    np: NounPhrase, case: str, negated_by: Key | None = None, relative: bool = True
) -> list[Word]:
    """``negated_by``: the negation that fuses with an indefinite determiner into kein.
    ``relative``: False if the relative clause stands elsewhere."""
    words = _pronoun(np, case) if np.noun is None else _full(np, case, negated_by)
    if relative and np.relative is not None:
        words += [mark(","), *_relative_clause(np.relative), mark(",")]
    for conjunct in np.conjuncts:
        words += [word(np.conjunction[1], (np, "and")), *noun_phrase(conjunct, case)]
    return words


def _relative_clause(node: Clause) -> list[Word]:
    """Noun phrases and clauses contain each other, so one import has to wait for the call."""
    from data_prep.embedded.syntax.german import clause

    return clause(node, "relative")


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
