"""Random choices that are the same on every Python version.

Only `random.Random.random` is promised to yield the same numbers for a seed for ever; choice,
shuffle and the rest may change their algorithm, so they are not used.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self._random.random() * len(items))]

    def weighted(self, items: Iterable[tuple[T, float]]) -> T:
        pairs = list(items)
        point = self._random.random() * sum(weight for _, weight in pairs)
        for item, weight in pairs:
            point -= weight
            if point < 0:
                return item
        return pairs[-1][0]
