"""Numbers and Markdown tables, in the form in which pages and commands print them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate

from collab_lab.metrics.significance import Gain

#: Attention types in the order of tables.
TYPE_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


def num(value: float | None, spec: str = ",", nothing: str = "-") -> str:
    """A number, formatted by Python's format language; ``nothing`` if it is None.

    A number that is rounded to 0 has no minus sign.
    """
    if value is None:
        return nothing
    text = format(value, spec)
    return text if re.search("[1-9a-zA-Z]", text) else format(abs(value), spec)


def p_value(p: float | None) -> str:
    """A p, with three decimals; none is 0."""
    return "<0.001" if p is not None and p < 0.0005 else num(p, ".3f")


def grid(header: Sequence[str], rows: Iterable[Sequence[Any]], left: Iterable[int] = (0,)) -> str:
    """A Markdown table; columns are right-aligned, except for the numbers in ``left``."""
    aligned = set(left)
    sides = ["left" if i in aligned else "right" for i in range(len(header))]
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return tabulate(cells, header, "pipe", colalign=sides, disable_numparse=True)


def spread(values: Sequence[float], spec: str = ".2f") -> str:
    """Mean ± sample standard deviation; for one seed only its value."""
    sd = f" ± {num(statistics.stdev(values), spec)}" if len(values) > 1 else ""
    return num(statistics.fmean(values), spec) + sd


def interval(gain: Gain, spec: str = "+.2f") -> str:
    """Mean and interval, ``-0.40 (-0.95 to +0.15)``; only the mean if there is no interval.

    An end that is rounded to 0 keeps its sign, which shows whether the interval contains 0.
    """
    ends = "" if gain.low is None else f" ({gain.low:{spec}} to {gain.high:{spec}})"
    return num(gain.mean, spec) + ends
