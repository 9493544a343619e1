"""Time programs in turn on one task, and compare their times turn by turn.

    ratio_t = (seconds of the first program in turn t) / (seconds of this program in turn t)

Programs A, B, C run in the order A B C, then C B A, and so on.  Each turn gives one ratio, so that
a disturbance longer than a turn slows all programs equally.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

Record = dict[str, Any]
#: Functions of a batch, by name.
Programs = Mapping[str, Callable[[Any], Any]]
#: Pause before each program.  OpenMP threads of the program before it spin for 0.2 s.
PAUSE = 0.25


def time_interleaved(
    programs: Programs,
    batches: Sequence[Any],
    min_turns: int,
    min_seconds: float = 0,
    pause: float = PAUSE,
) -> dict[str, list[float]]:
    """Seconds of each program in each turn; the caller warms the programs up.

    Args:
        batches: work; a turn takes one batch, in shuffled order, again from the start if need be.
        min_turns: the least number of turns.
        min_seconds: the least duration of all turns together.
    """
    # Batches come sorted by length: shuffled, a few turns see short and long ones.
    order = random.Random(1).sample(batches, len(batches))
    times: dict[str, list[float]] = {name: [] for name in programs}
    start, turn = clock(), 0
    while turn < min_turns or clock() - start < min_seconds:
        epoch, index = divmod(turn, len(order))
        # Alternates within an epoch, and for each batch from epoch to epoch.
        for name in [*programs][:: -1 if (index + epoch) % 2 else 1]:
            time.sleep(pause)
            begin = clock()
            programs[name](order[index])
            times[name].append(clock() - begin)
        turn += 1
    return times


def clock() -> float:
    """Seconds, after the GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def speedups(times: Mapping[str, Sequence[float]]) -> Iterator[Record]:
    """One record per program: the ratios of the first program's times to its own.

    Yields:
        ``engine``: name of the program; ``ratio``: median, above 1 where it is faster than the
        first; ``low``, ``high``: 5th and 95th percentile; ``turns``; ``seconds``: median.
    """
    first = next(iter(times.values()))
    for name, program_times in times.items():
        p5, ratio, p95 = np.quantile(np.divide(first, program_times), (0.05, 0.5, 0.95)).tolist()
        ratios = {"ratio": ratio, "low": p5, "high": p95}
        seconds = float(np.median(program_times))
        yield {"engine": name, **ratios, "turns": len(program_times), "seconds": seconds}
