"""The smallest shared key dimension that keeps within a budget, by bisection."""

from __future__ import annotations

from collections.abc import Callable


def smallest(low: int, high: int, good: Callable[[int], bool]) -> int:
    """The smallest ``K`` in ``low .. high`` with ``good(K)``, if goodness grows with ``K``.

    ``high`` is taken to be good (``K = H h`` is exact) and never asked for.  Where goodness does
    not quite grow with ``K``, the result is still good, and ``K - 1`` was not, or is ``low``.
    """
    while low < high:
        middle = (low + high) // 2
        if good(middle):
            high = middle
        else:
            low = middle + 1
    return high
