"""Tables in Markdown and numbers in them, as all pages and commands print them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate

from fairseq_collab.metrics.significance import Gain


def num(value: float | None, spec: str = ",", nothing: str = "-") -> str:
    """A number in Python's format language; ``nothing`` where there is none.

    What is less than nothing by less than is shown is shown as 0.
    """
    if value is None:
        return nothing
    text = format(value, spec)
    return text if re.search("[1-9a-zA-Z]", text) else format(abs(value), spec)


def grid(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    left: Iterable[int] = (0,),
    padded: bool = True,
) -> str:
    """A Markdown table; columns are right-aligned but for those numbered in ``left``.

    Args:
        padded: whether columns are as wide as their widest cell, for readers of the text itself.
    """
    aligned = set(left)
    sides = ["left" if i in aligned else "right" for i in range(len(header))]
    cells = [[str(cell) for cell in row] for row in rows]
    table = tabulate(cells, header, "pipe", colalign=sides, disable_numparse=True)
    return table if padded else re.sub(r"-{3,}", "---", re.sub(" +", " ", table))


def mean(values: Iterable[float]) -> float | None:
    """The mean, None of nothing."""
    found = list(values)
    return statistics.fmean(found) if found else None


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation, None of fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def spread(values: Sequence[float], spec: str = ".2f") -> str:
    """Mean ± standard deviation; for one seed its value alone."""
    sd = deviation(values)
    return num(mean(values), spec) + ("" if sd is None else f" ± {num(sd, spec)}")


def interval(found: Gain, spec: str = "+.2f") -> str:
    """``-0.40 (-0.95 to +0.15)``; the mean alone where there is no interval."""
    ends = "" if found.low is None else f" ({num(found.low, spec)} to {num(found.high, spec)})"
    return num(found.mean, spec) + ends
