"""Tables in Markdown, as all pages and commands print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate


def grid(header: Sequence[str], rows: Iterable[Sequence[Any]], left: Iterable[int] = (0,)) -> str:
    """A Markdown table; columns are right-aligned but for those numbered in ``left``."""
    aligned = set(left)
    sides = ["left" if place in aligned else "right" for place in range(len(header))]
    cells = [[str(cell) for cell in row] for row in rows]
    return tabulate(cells, header, "pipe", colalign=sides, disable_numparse=True)
