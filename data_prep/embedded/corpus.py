"""Streams of distinct sentence pairs, and disjoint splits of them."""

from __future__ import annotations

from collections.abc import Iterator

from data_prep.embedded.grammar.constructions import CONSTRUCTIONS
from data_prep.embedded.grammar.dice import Dice
from data_prep.embedded.grammar.scene import NoFit, Scene
from data_prep.embedded.lexicon import load
from data_prep.embedded.pairs import Pair, realise

# Fruitless draws in a row after which the sentence space counts as used up.
PATIENCE = 2000
MAX_TOKENS = 26


class GrammarExhausted(ValueError):
    """More distinct sentences were asked for than the grammar can give."""


def stream(seed: int, constructions: tuple[str, ...] | None = None) -> Iterator[Pair]:
    """Endless random pairs; a sentence may come again."""
    dice = Dice(seed)
    lexicon = load()
    names = constructions or tuple(CONSTRUCTIONS)
    while True:
        name = dice.weighted((n, CONSTRUCTIONS[n][1]) for n in names)
        pair = _draw(name, Scene(dice, lexicon))
        if pair is not None:
            yield pair


def _draw(name: str, scene: Scene) -> Pair | None:
    """One pair of the construction; failed draws repeat, so that weights hold as stated."""
    build, _ = CONSTRUCTIONS[name]
    for _ in range(100):
        try:
            node, form, stop = build(Scene(scene.dice, scene.lexicon))
        except NoFit:
            continue
        pair = realise(node, form, stop, name)
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
                raise GrammarExhausted(
                    f"only {len(seen)} distinct sentences found of {n}: ask for fewer"
                )
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
