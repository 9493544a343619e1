"""Times in turn, and what can be said of their ratios.

Programs A and B are timed as A B, then B A, and so on, on the same work.  Each turn gives one ratio
of times, so that what slows the machine for longer than a turn slows both.  torch's own ``Timer``
repeats one program and cannot take turns (and its module needs setuptools to be installed).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from collab_common.errors import UserError
from fairseq_collab.bench.settings import Budget, Record

#: By name, as in tables: what is to be timed on an item.
Programs = Mapping[str, Callable[[Any], Any]]
#: What is to be compared: the names of *against* and *model*.
NamePairs = Sequence[tuple[str, str]]


def timed(
    labels: Record, programs: Programs, items: Sequence[Any], budget: Budget, pairs: NamePairs
) -> Iterator[Record]:
    """Time the programs that are named in turn: a record for each pair, *against* and *model*."""
    names = dict.fromkeys(itertools.chain.from_iterable(pairs))
    times = in_turn({name: programs[name] for name in names}, items, budget)
    for against, model in pairs:
        found = compare(times[against], times[model])
        yield {**labels, "model": model, "against": against, **found}


def in_turn(
    programs: Programs, items: Sequence[Any], budget: Budget, pause: float = 0
) -> dict[str, list[float]]:
    """Time all ``programs`` on one item after the other: the seconds of each in every turn.

    Goes over the items again if need be, until the budget is spent; the order of the programs is
    reversed every other time.  The caller has warmed them up.

    Args:
        pause: seconds before each program, in which the threads of the one before it fall asleep.
    """
    # Batches are sorted by length; a run that ends within a pass has then seen all lengths.
    order = random.Random(1).sample(items, len(items))
    seconds, least = budget
    times: dict[str, list[float]] = {name: [] for name in programs}
    start = clock()
    for turn in itertools.count():
        passes, place = divmod(turn, len(order))
        for name in [*programs][:: -1 if (place + passes) % 2 else 1]:
            time.sleep(pause)
            begin = clock()
            programs[name](order[place])
            times[name].append(clock() - begin)
        if turn + 1 >= least and clock() - start >= seconds:
            break
    return times


def clock() -> float:
    """Seconds; the GPU's work so far is over."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def compare(first: Sequence[float], second: Sequence[float]) -> Record:
    """What pairs of times say.

    Returns:
        ``ratio``: median of (seconds of the first)/(seconds of the second): above 1, the second is
        faster; ``low``, ``high``: 5th and 95th percentile of the ratios, with few pairs nearly the
        extremes; ``pairs``: how many; the median times.
    """
    low, ratio, high = np.quantile(np.divide(first, second), (0.05, 0.5, 0.95)).tolist()
    seconds = {"first_seconds": float(np.median(first)), "second_seconds": float(np.median(second))}
    return {"ratio": ratio, "low": low, "high": high, "pairs": len(first), **seconds}


def unequal(what: str) -> UserError:
    """The refusal to time what does not compute the same."""
    todo = "nothing was timed: these two models do not compute the same function"
    return UserError(what, "the benchmark's check", todo)
