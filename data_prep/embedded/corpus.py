"""Streams of distinct sentence pairs, and disjoint splits of them."""

from __future__ import annotations

from collections.abc import Iterator

from collab_common.errors import UserError
from data_prep.embedded.constructions import CONSTRUCTIONS
from data_prep.embedded.pairs import Pair, realise
from data_prep.embedded.scene import Dice, NoFit, Scene

# Fruitless draws in a row after which the sentence space counts as used up.
PATIENCE = 2000
MAX_TOKENS = 26


class GrammarExhausted(UserError):
    """More distinct sentences were asked for than the grammar can give."""


def stream(seed: int, constructions: tuple[str, ...] | None = None) -> Iterator[Pair]:
    """Endless random pairs; a sentence may come again."""
    dice = Dice(seed)
    names = constructions or tuple(CONSTRUCTIONS)
    while True:
        name = dice.weighted((n, CONSTRUCTIONS[n].weight) for n in names)
        pair = _draw(name, dice)
        if pair is not None:
            yield pair


def _draw(name: str, dice: Dice) -> Pair | None:
    """One pair of the construction; failed draws repeat, so that weights hold as stated."""
    for _ in range(100):
        try:
            sentence = CONSTRUCTIONS[name].build(Scene(dice))
        except NoFit:
            continue
        pair = realise(sentence, name)
        if len(pair.english_tokens) <= MAX_TOKENS:
            return pair
    return None


def generate(n: int, seed: int, constructions: tuple[str, ...] | None = None) -> Iterator[Pair]:
    """``n`` pairs with distinct English sentences, the same for the same seed everywhere."""
    seen: set[str] = set()
    fruitless = 0
    pairs = stream(seed, constructions)
    while len(seen) < n:
        pair = next(pairs)
        if pair.english in seen:
            fruitless += 1
            if fruitless >= PATIENCE:
                found = f"only {len(seen)} distinct sentences found of {n}"
                raise GrammarExhausted(found, todo="ask for fewer")
            continue
        fruitless = 0
        seen.add(pair.english)
        yield pair


def splits(
    train: int, valid: int, test: int, seed: int, constructions: tuple[str, ...] | None = None
) -> dict[str, list[Pair]]:
    """Splits without a common source sentence.

    The held-out splits are drawn first, so they do not change with the size of training.
    """
    pairs = generate(train + valid + test, seed, constructions)
    sizes = {"test": test, "valid": valid, "train": train}
    drawn = {name: [next(pairs) for _ in range(size)] for name, size in sizes.items()}
    return {name: drawn[name] for name in ("train", "valid", "test")}
