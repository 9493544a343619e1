"""Times in turn, and what can be said of their ratios.

Two programs A and B are timed as A B, then B A, and so on, on the same work.  Each turn gives one
ratio of times, so that what slows the machine for longer than a turn slows both.  Reported are
the median of the ratios and their 5th and 95th percentiles.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch

Item = TypeVar("Item")


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        ratio: median of (seconds of the first)/(seconds of the second): above 1, the second is
            faster.
        low, high: 5th and 95th percentile of the ratios; with few pairs, nearly the extremes.
        pairs: how many.
        first_seconds, second_seconds: median time of a turn.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    first_seconds: float
    second_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def compare(times: Sequence[tuple[float, float]]) -> Comparison:
    """Summarise pairs of times.

    Raises:
        ValueError: there are none.
    """
    if not times:
        raise ValueError("no pair of times")
    ratios = sorted(first / second for first, second in times)
    return Comparison(
        ratio=statistics.median(ratios),
        low=quantile(ratios, 0.05),
        high=quantile(ratios, 0.95),
        pairs=len(ratios),
        first_seconds=statistics.median(first for first, _ in times),
        second_seconds=statistics.median(second for _, second in times),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the ordered values lie, interpolated."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def in_turn(
    programs: Sequence[Callable[[Item], object]],
    items: Sequence[Item],
    seconds: float,
    least: int,
    device: str = "cpu",
) -> list[tuple[float, ...]]:
    """Time all ``programs`` on one item after the other, the order reversed every other time.

    Goes on, over the items again if need be, until ``seconds`` have passed and there are ``least``
    turns.  The caller has warmed the programs up.

    Returns:
        The seconds of each program, in the order of ``programs``, one tuple a turn.
    """
    # Batches are sorted by length; a run that ends within a pass has then seen all lengths.
    order = list(range(len(items)))
    random.Random(1).shuffle(order)
    found: list[tuple[float, ...]] = []
    start = time.perf_counter()
    passes = 0
    while True:
        for place, number in enumerate(order):
            turn = list(range(len(programs)))
            if (place + passes) % 2:
                turn.reverse()
            times = {i: timed(programs[i], items[number], device) for i in turn}
            found.append(tuple(times[i] for i in range(len(programs))))
            if len(found) >= least and time.perf_counter() - start >= seconds:
                return found
        passes += 1


def timed(program: Callable[[Item], object], item: Item, device: str) -> float:
    """Seconds of one call, whose work on the device is over at both ends."""
    synchronise(device)
    start = time.perf_counter()
    program(item)
    synchronise(device)
    return time.perf_counter() - start


def synchronise(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()
