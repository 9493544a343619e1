"""Timing programs that take turns (A B, B A, and so on), and how many times as fast they are.

The machine's speed drifts, but the programs of one turn meet the same conditions.  So each turn
measures their ratio.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch

from collab_lab.metrics.significance import gain_of

Record = dict[str, Any]
#: Turns of programs, and seconds of all turns.
LEAST = (7, 8)
#: Seconds before a translation with several threads: those of the last one spin for 0.2.
PAUSE = 0.25


def pause() -> float:
    """Seconds to wait before a translation: see :data:`PAUSE`."""
    return PAUSE if torch.get_num_threads() > 1 else 0.0


def clock() -> float:
    """The time in seconds, read after the GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def turns(
    programs: Mapping[str, Callable[[Any], Any]], batches: Sequence[Any], pause: float = PAUSE
) -> Iterator[dict[str, float]]:
    """Time programs endlessly: A B C, then C B A, and so on.

    Args:
        batches: input of the programs, one per turn, in random order.
        pause: seconds to wait before each program.

    Yields:
        The seconds of each program in one turn.
    """
    order = random.Random(1).sample(batches, len(batches))
    for turn in count():
        epoch, index = divmod(turn, len(order))
        seconds = dict[str, float]()
        # Alternates within an epoch, and for each batch from epoch to epoch.
        for name in [*programs][:: -1 if (index + epoch) % 2 else 1]:
            time.sleep(pause)
            begin = clock()
            programs[name](order[index])
            seconds[name] = clock() - begin
        yield seconds


def take_turns(
    programs: Mapping[str, Callable[[Any], Any]],
    batches: Sequence[Any],
    pause: float = PAUSE,
    least: float | None = None,
) -> Iterator[Record]:
    """Time programs in :func:`turns`, as often as :data:`LEAST` says.

    Args:
        least: seconds that all turns take at least, instead of those of :data:`LEAST`.

    Yields:
        ``engine``: name of the program; ``ratio``: median of the first program's times over its
        own, by turn; ``low``, ``high``: 5th and 95th percentile; ``turns``; ``seconds``: median.
    """
    times: dict[str, list[float]] = {name: [] for name in programs}
    start, turn = clock(), 0
    for turn, seconds in enumerate(turns(programs, batches, pause), 1):
        for name, taken in seconds.items():
            times[name].append(taken)
        if turn >= LEAST[0] and clock() - start >= (LEAST[1] if least is None else least):
            break
    first = next(iter(times.values()))
    for name, own in times.items():
        low, ratio, high = np.quantile(np.divide(first, own), (0.05, 0.5, 0.95)).tolist()
        record = {"engine": name, "ratio": ratio, "low": low, "high": high, "turns": turn}
        yield record | {"seconds": float(np.median(own))}


class Ratio(NamedTuple):
    """How many times as fast: the geometric mean over turns, with a 95% t-interval if possible."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} ± {(self.high - self.low) / 2:.2f}"


def times_as_fast(turns: Sequence[Mapping[str, float]], name: str, as_: str) -> Ratio:
    """How many times as fast ``name`` is as ``as_``, by their seconds in the same turns."""
    gain = gain_of([math.log(turn[as_] / turn[name]) for turn in turns])
    if gain.low is None or gain.high is None:
        return Ratio(math.exp(gain.mean))
    return Ratio(*map(math.exp, (gain.mean, gain.low, gain.high)))
