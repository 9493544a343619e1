"""How the report writes numbers, and names in the field's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from fairseq_collab.results.names import named
from fairseq_collab.results.table_content import NOUNS
from fairseq_collab.results.tables import EN_DASH

#: Data folders that recipes make, and subsets, by their usual names.
DATA = {
    "iwslt14": "IWSLT14",
    "multi30k": "Multi30k",
    "wmt14": "WMT14",
}
SUBSETS = {"test": "test set", "valid": "validation set"}
#: A method of which the name ends with the penalty of the gates that chose its heads.
PENALTY = re.compile(r"(all|encoder)-([\d.]+|P)")
PRUNED = {"all": "pruned heads", "encoder": "pruned encoder heads"}
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


def data_text(section: Content) -> str:
    """``Multi30k, test set``."""
    data, subset = section["data"], section["subset"]
    return f"{DATA.get(data, data)}, {SUBSETS.get(subset, f'set {subset}')}"


def row_texts(rows: Sequence[Content]) -> dict[int, str]:
    """``18: collaborative heads, key dimension 128``, by number; names that are equal get folders.

    Without the colon a number would read as that of heads.
    """
    labels = [label_text(row["label"]) for row in rows]
    return {
        row["number"]: f"{row['number']}: {label}"
        + (f" ({row['experiment']})" if labels.count(label) > 1 else "")
        for row, label in zip(rows, labels, strict=True)
    }


def label_text(label: str) -> str:
    """A method, and the sweep's choices, as a reader says them: ``key_dim=128`` is a dimension."""
    method, *choices = label.split(", ")
    found = PENALTY.fullmatch(method)
    name = named(method)
    if found:  # no gate closes without a penalty
        name = f"{'all heads' if found[2] == '0' else PRUNED[found[1]]}, penalty {found[2]}"
    return ", ".join([name, *map(choice_text, choices)])


def choice_text(choice: str) -> str:
    """``key dimension 128`` of ``key_dim=128``."""
    name, _, value = choice.partition("=")
    return f"{setting_text(name)} {value}" if value else choice


def setting_text(name: str) -> str:
    """``key dimension`` of ``key_dim``."""
    return NOUNS.get(name, name.replace("_", " "))


def method_text(method: str) -> str:
    """``all-P`` of ``all-0.03``: a penalty in a name is a setting, not a method."""
    found = PENALTY.fullmatch(method)
    return f"{found[1]}-P" if found else method


def heads_text(row: Content) -> str:
    """``8``; where layers differ all heads of the model, of every seed: ``34, 30 in all``."""
    if row["heads"] is not None:
        return str(row["heads"])
    counts = row["heads_in_all"]
    return f"{', '.join(map(str, dict.fromkeys(counts)))} in all" if counts else "vary"


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
    start += f", folder {budget['folder']}" if budget.get("folder") else ""
    return f"{epochs} ({between(budget['updates'])} updates) {start}"
