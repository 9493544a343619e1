"""How the report writes numbers and names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from fairseq_collab.results.tables import EN_DASH

MINUS = "\N{MINUS SIGN}"
Content = Mapping[str, Any]


def signed(value: float | None) -> str:
    """A difference, with a real minus sign."""
    if value is None:
        return EN_DASH
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", MINUS)


def share(value: float | None) -> str:
    """A ratio of sizes as a change: +0.3 %, -25.4 %, with a real minus sign."""
    return EN_DASH if value is None else f"{100 * (value - 1):+.1f} %".replace("-", MINUS)


def between(ends: Sequence[float]) -> str:
    """``6``, or ``5 to 7``."""
    return " to ".join(f"{end:,}" for end in sorted({min(ends), max(ends)}))


def row_text(row: Content) -> str:
    """``18 collab, key_dim=128``."""
    return f"{row['number']} {row['label']}"


def method_text(method: str) -> str:
    """``all-P`` of ``all-0.03``: a penalty in a name is a setting, not a method."""
    return re.sub(r"^(all|encoder)-[\d.]+$", r"\1-P", method)


def breakable(name: str) -> Markup:
    """A name that narrow columns may break behind an underscore and the like, not elsewhere."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[_=/])", name))


def counted(number: int, what: str) -> str:
    """``1 epoch``, ``6 epochs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def budget_text(budget: Content) -> str:
    """``6 epochs (3,468 updates) from scratch``; of fine-tuned rows also the folder."""
    ends = budget["epochs"]
    epochs = f"{between(ends)} epoch{'' if list(ends) == [1, 1] else 's'}"
    start = "from trained weights" if budget["fine_tuned"] else "from scratch"
    start += f", {budget['folder']}" if budget.get("folder") else ""
    return f"{epochs} ({between(budget['updates'])} updates) {start}"
