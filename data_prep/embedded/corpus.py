"""Distinct sentence pairs with their analyses, disjoint splits of them, and their text formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from collab_common.errors import UserError
from data_prep.embedded import english, german
from data_prep.embedded.constructions import CONSTRUCTIONS, build
from data_prep.embedded.scene import Dice, NoFit, Scene
from data_prep.embedded.tree import Sentence, Word

# Fruitless draws in a row after which the sentence space counts as used up.
PATIENCE = 2000


class EnglishToken(NamedTuple):
    """One word of the dependency tree; ``head`` is 1-based, 0 for the root."""

    form: str
    lemma: str
    upos: str
    head: int
    relation: str
    space_after: bool = True


class Pair(NamedTuple):
    """``alignment``: pairs of 0-based English and German token positions, sorted."""

    english: str
    german: str
    english_tokens: tuple[EnglishToken, ...]
    german_tokens: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    construction: str


def realise(sentence: Sentence, construction: str) -> Pair:
    """The sentence in both languages."""
    source, target = english.sentence(sentence), german.sentence(sentence)
    position = {id(word): i for i, word in enumerate(source, start=1)}
    glued = [*(word.glued for word in source[1:]), False]
    tokens = tuple(
        EnglishToken(w.form, w.lemma, w.upos, position.get(id(w.head), 0), w.relation, not tight)
        for w, tight in zip(source, glued, strict=True)
    )
    alignment = tuple(
        (i, j)
        for i, word in enumerate(source)
        for j, other in enumerate(target)
        if word.keys & other.keys
    )
    words = tuple(word.form for word in target)
    return Pair(_join(source), _join(target), tokens, words, alignment, construction)


def _join(words: list[Word]) -> str:
    return "".join(("" if word.glued else " ") + word.form for word in words).strip()


def conllu(pair: Pair, sentence_id: str) -> str:
    """One sentence block: ten columns a word, closed by an empty line."""
    lines = [f"# sent_id = {sentence_id}", f"# text = {pair.english}"]
    for i, t in enumerate(pair.english_tokens, start=1):
        misc = "_" if t.space_after else "SpaceAfter=No"
        row = (str(i), t.form, t.lemma, t.upos, "_", "_", str(t.head), t.relation, "_", misc)
        lines.append("\t".join(row))
    return "\n".join(lines) + "\n\n"


def pharaoh(pair: Pair) -> str:
    """0-based ``english-german`` token positions."""
    return " ".join(f"{i}-{j}" for i, j in pair.alignment)


def generate(n: int, seed: int) -> Iterator[Pair]:
    """``n`` pairs with distinct English sentences, the same for the same seed everywhere.

    Raises UserError if the grammar cannot give so many.
    """
    dice = Dice(seed)
    seen: set[str] = set()
    fruitless = 0
    while len(seen) < n:
        row = dice.weighted((row, float(row["weight"])) for row in CONSTRUCTIONS)
        try:
            pair = realise(build(Scene(dice), row), row["name"])
        except NoFit:
            continue
        fruitless = fruitless + 1 if pair.english in seen else 0
        if fruitless >= PATIENCE:
            found = f"only {len(seen)} distinct sentences found of {n}"
            raise UserError(found, todo="ask for fewer")
        if not fruitless:
            seen.add(pair.english)
            yield pair


def splits(train: int, valid: int, test: int, seed: int) -> dict[str, list[Pair]]:
    """Splits without a common source sentence.

    The held-out splits are drawn first, so they do not change with the size of training.
    """
    pairs = generate(train + valid + test, seed)
    sizes = {"test": test, "valid": valid, "train": train}
    drawn = {name: [next(pairs) for _ in range(size)] for name, size in sizes.items()}
    return {name: drawn[name] for name in ("train", "valid", "test")}
