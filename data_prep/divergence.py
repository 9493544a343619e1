"""Where two texts of unequal length first stop being translations of each other: a guess.

If one text has d lines too many and they stand in one place p, then line i of the one belongs
to line i of the other before p, and line i + d after it. So we give each pairing a likeness from
what translation keeps (length, digits, final punctuation) and take the p at which the total is
highest: one pass, constant memory.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from collab_common.files import open_bytes

MAX_SHIFT = 10_000  # lines held in memory
_DIGITS = re.compile(rb"\d+")


def first_divergence(source: Path, target: Path, extra: int) -> int | None:
    """The 1-based line near which the texts part; None if there is no telling.

    `extra` is the number of lines that source has more than target; negative if it has fewer.
    """
    if not 0 < abs(extra) <= MAX_SHIFT:
        return None
    longer, shorter = (source, target) if extra > 0 else (target, source)
    shift = abs(extra)
    total = best = 0.0
    best_at = line = 0
    with open_bytes(longer) as long_text, open_bytes(shorter) as short_text:
        ahead = deque((long_text.readline() for _ in range(shift)), maxlen=shift)
        for line, short in enumerate(short_text, 1):
            unshifted = ahead.popleft()
            shifted = long_text.readline()
            ahead.append(shifted)
            total += _likeness(unshifted, short) - _likeness(shifted, short)
            if total > best:
                best, best_at = total, line
    # a text that ends too early has next to nothing behind p to tell from
    convincing = line - best_at <= 3 or best - total > 2.0
    return best_at + 1 if convincing else None


def unequal(source: Path, target: Path, lines: Sequence[int]) -> str:
    """How many lines the two texts have, and where they seem to part."""
    what = f"{source} has {lines[0]:,} lines, {target} has {lines[1]:,}"
    if not (source.is_file() and target.is_file()):
        return what  # a pipe can be read but once
    at = first_divergence(source, target, lines[0] - lines[1])
    return f"{what}; they seem to part near line {at:,}" if at else what


def _likeness(one: bytes, other: bytes) -> float:
    """0 for lines that may be translations of each other, lower the less they look like it."""
    one, other = one.strip(), other.strip()
    score = -min(2.0, abs(math.log((len(one) + 3) / (len(other) + 3))))
    if one[-1:] != other[-1:]:
        score -= 0.5
    if sorted(_DIGITS.findall(one)) != sorted(_DIGITS.findall(other)):
        score -= 1.0
    return score
