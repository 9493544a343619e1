"""How many times as fast: seconds of programs that take turns, A B, B A, and so on.

The machine's speed drifts; two programs of one turn meet the same machine, so that their ratio is
what a turn measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from collab_lab.metrics.significance import gain_of


class Ratio(NamedTuple):
    """Times as fast: the geometric mean over turns, with its 95% t-interval, if there is one."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} ± {(self.high - self.low) / 2:.2f}"


def times_as_fast(turns: Sequence[Mapping[str, float]], name: str, as_: str) -> Ratio:
    """Seconds of the program ``as_`` by those of ``name`` in the same turn."""
    gain = gain_of([math.log(turn[as_] / turn[name]) for turn in turns])
    if gain.low is None or gain.high is None:
        return Ratio(math.exp(gain.mean))
    return Ratio(*map(math.exp, (gain.mean, gain.low, gain.high)))
