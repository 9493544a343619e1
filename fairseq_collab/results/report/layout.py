"""Where the ticks of an axis and the marks of a chart stand."""

from __future__ import annotations

import math
from collections.abc import Sequence

TICKS = 5


def nice_ticks(low: float, high: float, number: int = TICKS) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``number`` of them."""
    if not high > low:
        return [low]
    rough = (high - low) / number
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least ``gap`` apart, in the same order, as near as can be to those wanted.

    Pool adjacent violators: neighbours that are too near move apart around their mean.  All stay
    between ``low`` and ``high``; where there is no room, the gap shrinks.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[tuple[float, int]] = []  # sum of the places of first members, and members
    for rank, i in enumerate(order):
        groups.append((wanted[i] - rank * gap, 1))
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, members = groups.pop()
            groups[-1] = (groups[-1][0] + total, groups[-1][1] + members)
    found = [0.0] * len(wanted)
    rank = 0
    last = high - gap * (len(wanted) - 1)
    for total, members in groups:
        start = min(max(total / members, low), last)
        for _ in range(members):
            found[order[rank]] = start + rank * gap
            rank += 1
    return found
