"""What is too large for the memory in one piece, a part after the other."""

from __future__ import annotations

from collections.abc import Iterator

#: Bytes of the largest tensor; a few of them are there at a time.
LARGEST = 2**28


def parts(number: int, each: int) -> Iterator[slice]:
    """Slices of a dimension of ``number`` places, at ``each`` bytes: at most :data:`LARGEST`, or
    one place."""
    step = max(1, LARGEST // max(1, each))
    return (slice(start, start + step) for start in range(0, number, step))
