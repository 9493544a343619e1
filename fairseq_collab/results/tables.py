"""Tables in Markdown, as all pages and commands print them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate


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
