"""How the page writes numbers and names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_collab.results.markup import Markup, join
from fairseq_collab.results.page import NOTHING

MINUS = "\N{MINUS SIGN}"
Content = Mapping[str, Any]


def whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def signed(value: float | None) -> str:
    """A difference, with a real minus sign."""
    if value is None:
        return NOTHING
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", MINUS)


def share(value: float | None) -> str:
    """A ratio of sizes as a change: +0.3 %, -25.4 %, with a real minus sign."""
    return NOTHING if value is None else f"{100 * (value - 1):+.1f} %".replace("-", MINUS)


def small_p(value: float) -> str:
    """A p of a bootstrap of 1,000 samples has three digits."""
    return f"{value:.3f}"


def between(ends: Sequence[int]) -> str:
    """``6``, or ``5 to 7``."""
    low, high = ends
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def interval_text(score: Content) -> str:
    """``33.53 (32.02 to 34.96)``."""
    return f"{score['mean']:.2f} ({score['low']:.2f} to {score['high']:.2f})"


def row_text(row: Content) -> str:
    """``18 collab, key_dim=128``."""
    return f"{row['number']} {row['label']}"


def breakable(name: str) -> Markup:
    """A name that narrow columns may break behind an underscore and the like, not elsewhere."""
    parts = [join([part]) for part in re.split(r"(?<=[_=/])", name)]
    return Markup("<wbr>".join(parts))


def budget_text(budget: Content) -> str:
    """``A: 6 epochs, 3,468 updates, from scratch``."""
    start = "from trained weights" if budget["fine_tuned"] else "from scratch"
    updates = between(budget["updates"])
    return f"{budget['letter']}: {epochs_text(budget['epochs'])}, {updates} updates, {start}"


def epochs_text(ends: Sequence[int]) -> str:
    """``1 epoch``, ``6 epochs``, ``3 to 6 epochs``."""
    return f"{between(ends)} epoch{'' if list(ends) == [1, 1] else 's'}"
