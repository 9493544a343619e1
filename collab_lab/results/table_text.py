"""A table as text."""

from __future__ import annotations

from typing import Any

import pandas as pd

from collab_common.errors import UserError
from collab_lab.metrics.significance import within
from collab_lab.results.collect import column, distinct, warnings
from collab_lab.results.render import grid, mean, num, render, spread
from collab_lab.results.table import NO_X, Row, Table, differences, measure

#: The columns of a table, where they are in ``score.json``, after the task's measure.
COLUMNS = (
    "chrf", "compound_split_bleu", "valid_loss", "parameters", "key_bytes_per_target_token",
    "multiply_adds", "train_tokens_per_second",
)  # fmt: skip
#: Headings of fields whose names do not say enough.
HEADINGS = {
    "key_dim": "key width",
    "multiply_adds": "multiply-adds",
    "bleu": "BLEU",
    "chrf": "chrF",
    "compound_split_bleu": "tokenised compound-split BLEU (not comparable with BLEU)",
    "cache_bytes_per_target_token": "KV cache, bytes per target token",
    "cache_bytes_per_source_token": "cross-attention's KV cache, bytes per source token",
    "key_bytes_per_target_token": "key cache, bytes per target token",
    "train_tokens_per_second": "training tokens/s",
    "valid_loss": "validation loss (criterion, bits)",
    "valid_nats": "validation loss (nats/token)",
}


def markdown(table: Table) -> str:
    """The whole of ``table.md``."""
    return render(
        "table.md.j2",
        title=title(table),
        rows=main_table(table),
        warnings=warnings(table.frame),
        left_out=table.left_out,
        baseline=table.baseline,
        differences=differences_table(table),
        noun=noun(table),
        command=table.command,
        first=table.frame.iloc[0].dropna(),
        decoding=distinct(table.frame, "beam", "lenpen"),
        commits=distinct(table.frame, "trained_at_commit"),
        hardware=distinct(table.frame, "hardware"),
    )


def noun(table: Table) -> str | None:
    """The name of what the table varies; None where it has no x."""
    return None if table.x == NO_X else heading(table.x)


def title(table: Table) -> str:
    """Score, x and data of the table."""
    first = table.frame.iloc[0]
    sentences = "" if pd.isna(first["sentences"]) else f" ({first['sentences']:,} sentences)"
    data = f"{first['data']}, {first['subset']}{sentences}"
    return f"{heading(table.score)} against {noun(table) or 'parameters'}: {data}"


def shown_columns(table: Table) -> tuple[str, ...]:
    """The columns that were chosen, or those of the default that some run has."""
    if not table.columns:
        names = dict.fromkeys((table.score, measure(table.frame), *COLUMNS))
        return tuple(name for name in names if any(cell(table, row, name) for row in table.rows))
    for name in table.columns:
        if column(table.frame, name) is None:
            todo = "give a field of score.json, such as valid_loss, or a choice of the sweep"
            raise UserError(f"no run has {name!r}", where="--columns", todo=todo)
    return table.columns


def heading(name: str) -> str:
    """The heading of a column."""
    return HEADINGS.get(name) or name.replace("_", " ").replace(".", ", ")


def cell(table: Table, row: Row, name: str) -> str:
    """A column of a row: mean and standard deviation, the number itself, or texts; "" for none."""
    values = row.values(name)
    if values and isinstance(values[0], float):
        return spread(values)
    if values and isinstance(values[0], int):
        return num(mean(values), ",.0f")
    texts = (", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in values)
    return "; ".join(sorted(set(texts)))


def main_table(table: Table) -> str:
    """The rows as Markdown."""
    head = ["method", *_x(table, noun(table)), "seeds", *map(heading, shown_columns(table))]
    lines = []
    for row in table.rows:
        cells = [cell(table, row, name) or "-" for name in shown_columns(table)]
        if not len(row.runs):
            cells[0] = "not run"
        lines.append([row.label, *_x(table, row.x), len(row.runs), *cells])
    return grid(head, lines)


def differences_table(table: Table) -> str:
    """What each row has more than the baseline, as Markdown; "" where nothing is tested."""
    lines, spec = [], "+.3f" if table.score.startswith("valid_") else "+.2f"
    for diff in differences(table):
        label = [diff.row.label, *_x(table, diff.row.x), len(diff.gains)]
        if diff.gain is None:
            lines.append([*label, "no common seed", "-", "-", *_margin(table, "-")])
            continue
        gain, interval = diff.gain, "-"
        if gain.low is not None:
            interval = f"{num(gain.low, spec)} to {num(gain.high, spec)}"
        p = "" if table.margin is None else num(within([*diff.gains.values()], table.margin), ".3f")
        lines.append([*label, num(gain.mean, spec), interval, num(diff.p_holm, ".3f")])
        lines[-1] += _margin(table, p)
    head = ["method", *_x(table, noun(table)), "common seeds"]
    head += [f"{heading(table.score)}, difference", "95% interval", "p (Holm)"]
    head += _margin(table, f"p (within {table.margin})")
    return grid(head, lines) if lines else ""


def _margin(table: Table, value: Any) -> list[Any]:
    """A cell where there is a margin, else none."""
    return [] if table.margin is None else [value]


def _x(table: Table, value: Any) -> list[Any]:
    """A cell where rows have an ``x``, else none."""
    return [] if table.x == NO_X else [value]
