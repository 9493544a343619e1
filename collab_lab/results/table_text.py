"""A table as text: Markdown, CSV, or LaTeX (package booktabs)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from collab_common.encodings import are_tokens
from collab_common.errors import UserError
from collab_lab.metrics.significance import Gain
from collab_lab.results.collect import SHARE, column, distinct
from collab_lab.results.render import grid, num, p_value, spread
from collab_lab.results.table import NO_X, Difference, Row, Table, differences, measure
from collab_lab.runs.record import Record

#: The columns of a table, where they are in ``score.json``, after the task's measure.
COLUMNS = (
    "chrf", "compound_split_bleu", "valid_loss", "parameters", SHARE,
    "cache_bytes_per_target_token", "cache_bytes_per_source_token", "multiply_adds",
)  # fmt: skip
#: Those of a LaTeX table, as many as :data:`PAPER` columns hold.
PAPER_COLUMNS = (SHARE, "parameters", "chrf")
#: Bits by which two roundings of one loss differ: see :mod:`collab_lab.runs.training`.
ROUNDED = 1e-4
#: Columns that fit in one column of a paper.
PAPER = 6
#: What a table says of its runs at the end: scores, and fields in which they may differ.
SIGNATURES = {
    "BLEU": "bleu_signature",
    "chrF": "chrf_signature",
    "tokenised compound-split BLEU": "compound_split_signature",
}
SOURCES = {
    "decoding": ("decoding",),
    "trained at commit": ("trained_at_commit",),
    "hardware": ("hardware",),
}
#: Headings of fields whose names do not say enough.
HEADINGS = {
    "key_dim": "key width",
    "multiply_adds": "multiply-adds",
    "bleu": "BLEU",
    "chrf": "chrF",
    "compound_split_bleu": "tokenised compound-split BLEU (not comparable with BLEU)",
    SHARE: "KV cache",
    "cache_bytes_per_target_token": "KV cache, bytes per target token",
    "cache_bytes_per_source_token": "KV cache, bytes per source token",
    "valid_loss": "smoothed validation loss (bits/token)",
    "valid_bits": "validation loss (bits/token)",
    "valid_nats": "validation loss (nats/token)",
    "train_seconds": "training, seconds",
    "train_threads": "training, threads",
    "train_jobs": "training, runs at a time",
    "translate_seconds": "translation, seconds",
    "translate_threads": "translation, threads",
    "translate_jobs": "translation, runs at a time",
}
#: Shorter ones for LaTeX.
SHORT = {
    "key_dim": "K",
    "valid_loss": "smoothed loss (bits)",
    "valid_bits": "loss (bits)",
    "valid_nats": "loss (nats)",
    "compound_split_bleu": "split BLEU",
}


def markdown(table: Table) -> str:
    """The content of ``table.md``."""
    first, tested = table.frame.iloc[0].dropna(), [*filter(None, differences(table))]
    sides = " on each side" if first["task"] == "translation" else ""
    parts = [
        f"# {title(table)}",
        grid(*main_cells(table)),
        "±: standard deviation over seeds (n - 1). BLEU, chrF: sacreBLEU, case-sensitive, on "
        f"{scored_text(first)}. Multiply-adds: one forward pass of "
        f"{first['multiply_adds_length']} tokens{sides}. "
        "KV cache: all decoder layers, as a share of the bytes of a 16-bit cache of standard heads "
        "with these layers and this width.",
        *listed("Warnings", table.warnings()),
        *listed("Not in the table", table.left_out),
    ]
    if tested:
        at_x = "" if table.x == NO_X else f" at the same {noun(table)}"
        parts += [
            f"## Against {table.baseline}",
            differences_table(table),
            f"Differences are paired by seed{at_x}: mean, 95% t-interval and its t-test, corrected "
            "for the number of rows (Holm 1979). Each row has the standard deviation of its own "
            "differences; one seed has no interval. `fairseq-collab compare` tests two "
            "translations on other sentences.",
        ]
    sources = [f"command: `{table.command}`"]
    sources += [f"{name}: `{first[of]}`" for name, of in SIGNATURES.items() if of in first]
    sources += [f"data: {first['data']}, SHA-256 {first.get('data_sha256', 'unknown')}"]
    for name, fields in SOURCES.items():
        sources += [f"{name}: {'; '.join(distinct(table.frame, *fields)) or 'unknown'}"]
    return "\n\n".join([*parts, *listed("Sources", sources)]) + "\n"


def scored_text(run: Mapping[str, Any]) -> str:
    """The text that the scores of a run belong to."""
    if "tok:none" in str(run.get("bleu_signature")):
        return "your tokens, as they are"
    if are_tokens(run.get("marks_apart", 0), run.get("sentences", 0)):
        return "text with punctuation apart from its word, as tokens have, and not comparable"
    return "text as it is in `raw/`"


def listed(title: str, items: Sequence[str]) -> list[str]:
    """A section that lists items; empty if there are none."""
    return [f"## {title}", "\n".join(f"- {item}" for item in items)] if items else []


def csv(table: Table) -> str:
    """The numbers as CSV: means, standard deviations (``_sd``), intervals."""
    names = shown_columns(table)
    lines = []
    for row, one in zip(table.rows, differences(table), strict=True):
        line = {"method": row.label, **dict(_x(table, (table.x, row.x))), "seeds": len(row.runs)}
        for name in names:
            values = row.values(name)
            if not values or not isinstance(values[0], (int, float)):
                line[name] = cell(table, row, name)
                continue
            line[name] = fmean(values)
            if len(values) > 1 and isinstance(values[0], float):
                line[f"{name}_sd"] = stdev(values)
        if one and one.gain:
            fields = ("difference", "difference_low", "difference_high", "p_holm")
            line |= dict(zip(fields, (*one.gain[:3], one.p_holm), strict=True))
        lines.append(line)
    return pd.DataFrame(lines).to_csv(index=False)


def latex(table: Table) -> str:
    """The rows with their differences from the baseline, as a LaTeX ``tabular`` with booktabs.

    It fits into one column of a paper: means have no standard deviations, the difference has half
    of its interval, and there are six columns unless the user chose others.
    """
    tested = differences(table)
    head = ["", *_x(table, noun(table) and _short(table, table.x)), _short(table, table.score)]
    head += ["difference", "p"] * any(tested)
    names = shown_columns(table) if table.columns else [
        name
        for name in dict.fromkeys((measure(table.frame), *PAPER_COLUMNS))
        if name != table.score and all(row.values(name) for row in table.rows)
    ][: PAPER - len(head)]  # fmt: skip
    lines = []
    for row, one in zip(table.rows, tested, strict=True):
        cells = [row.label, *_x(table, row.x), _mean(row, table.score)]
        if any(tested):
            gain = one and one.gain
            cells += [_difference(gain, table.score), p_value(one and one.p_holm)]
        lines.append([*cells, *(_mean(row, name) for name in names)])
    titles = [*head, *(_short(table, name) for name in names)]
    sides = ["left", *["right"] * (len(titles) - 1)]
    text = tabulate(lines, titles, "latex_booktabs", colalign=sides, disable_numparse=True)
    text = re.sub(r"(?<![\w-])-(?=\d)", "$-$", text).replace("±", r"$\pm$")
    seeds = sorted({len(row.runs) for row in table.rows})
    says = [f"% Means over {' to '.join(dict.fromkeys(map(str, (seeds[0], seeds[-1]))))} seeds."]
    if any(tested):
        says += [
            f"% difference: from {table.baseline}, paired by seed; half of the 95% t-interval.",
            "% p: t-test, corrected for the number of rows (Holm 1979).",
        ]
    return "\n".join([*says, text]) + "\n"


def _short(table: Table, name: str) -> str:
    """The heading of a column in LaTeX."""
    return SHORT.get(_plain(table, name)) or heading(table, name)


def _mean(row: Row, name: str) -> str:
    """A mean over seeds, or texts."""
    values = row.values(name)
    if values and isinstance(values[0], (int, float)):
        return _number(fmean(values), name, ",.0f" if isinstance(values[0], int) else _spec(name))
    return text_of(values) or "-"


def _difference(gain: Gain | None, score: str) -> str:
    """A difference with half of its interval."""
    if gain is None:
        return "-"
    half = "" if gain.high is None else f" ± {num(gain.high - gain.mean, _spec(score))}"
    return num(gain.mean, "+" + _spec(score)) + half


def noun(table: Table) -> str | None:
    """The name of the table's x in sentences; None if it has no x."""
    return None if table.x == NO_X else heading(table, table.x)


def title(table: Table) -> str:
    """The title of the table: its score, x and data."""
    first = table.frame.iloc[0]
    unit = "documents" if first.dropna().get("breaks_wanted") else "sentences"
    lines = "" if pd.isna(first["sentences"]) else f" ({first['sentences']:,} {unit})"
    data = f"{first['data']}, {first['subset']}{lines}"
    return f"{heading(table, table.score)} against {noun(table) or 'parameters'}: {data}"


def shown_columns(table: Table) -> tuple[str, ...]:
    """The columns that the user chose, or the default columns that at least one run has."""
    if not table.columns:
        names = dict.fromkeys((table.score, measure(table.frame), *COLUMNS))
        return tuple(name for name in names if any(cell(table, row, name) for row in table.rows))
    known = {*HEADINGS, *Record.__annotations__}
    for name in table.columns:
        if name not in known and column(table.frame, name) is None:
            todo = "give a field of score.json, such as valid_loss, or a choice of the sweep"
            raise UserError(f"no run has {name!r}", where="--columns", todo=todo)
    return table.columns


def heading(table: Table, name: str) -> str:
    """The heading of a column."""
    name = _plain(table, name)
    return HEADINGS.get(name) or name.replace("_", " ").replace(".", ", ")


def _plain(table: Table, name: str) -> str:
    """The loss under its plain name, where no criterion smooths it; else the name as it is."""
    if name != "valid_loss" or not all(row.values("valid_bits") for row in table.rows):
        return name
    losses = ((row.values(name), row.values("valid_bits")) for row in table.rows)
    same = all(np.allclose(*pair, rtol=0, atol=ROUNDED) for pair in losses)
    return "valid_bits" if same else name


def cell(table: Table, row: Row, name: str) -> str:
    """A cell: mean and standard deviation, the number itself, or texts; "" if there is no value."""
    values = row.values(name)
    if values and isinstance(values[0], float) and name != SHARE:
        return spread(values, _spec(name))
    if values and isinstance(values[0], (int, float)):
        return _number(fmean(values), name, ",.0f")
    return text_of(values)


def text_of(values: Sequence[Any]) -> str:
    """The different values of a row that are not numbers, as text."""
    texts = (", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in values)
    return "; ".join(sorted(set(texts)))


def _number(value: float, name: str, spec: str) -> str:
    """A number of a column; shares are percentages."""
    if name != SHARE:
        return num(value, spec)
    return f"{100 * value:.1f}".removesuffix(".0") + "%"


def main_cells(table: Table) -> tuple[list[Any], list[list[Any]]]:
    """The headings and rows of the main table."""
    titles = (heading(table, name) for name in shown_columns(table))
    head = ["method", *_x(table, noun(table)), "seeds", *titles]
    lines = []
    for row in table.rows:
        cells = [cell(table, row, name) or "-" for name in shown_columns(table)]
        lines.append([row.label, *_x(table, row.x), len(row.runs), *cells])
    return head, lines


def differences_table(table: Table) -> str:
    """The difference of each row from the baseline, as Markdown."""
    lines = [
        [row.label, *_x(table, row.x), len(one.gains), *difference_cells(table, one)]
        for row, one in zip(table.rows, differences(table), strict=True)
        if one
    ]
    head = ["method", *_x(table, noun(table)), "common seeds", *difference_heads(table)]
    return grid(head, lines)


def difference_heads(table: Table) -> list[str]:
    """The headings for :func:`difference_cells`."""
    return [f"{heading(table, table.score)}, difference", "95% interval", "p (Holm)"]


def difference_cells(table: Table, one: Difference | None) -> list[str]:
    """The cells with mean difference, interval and p."""
    if one is None or one.gain is None:
        return ["no common seed" if one else "-", "-", "-"]
    gain, interval, spec = one.gain, "-", "+" + _spec(table.score)
    if gain.low is not None:
        interval = f"{num(gain.low, spec)} to {num(gain.high, spec)}"
    return [num(gain.mean, spec), interval, p_value(one.p_holm)]


def _spec(name: str) -> str:
    """Decimals of a column: losses of seeds differ by thousandths, times by seconds."""
    if name.endswith("_seconds"):
        return ",.0f"
    return ".4f" if name.startswith("valid_") else ".2f"


def _x(table: Table, value: Any) -> list[Any]:
    """A cell where rows have an ``x``, else none."""
    return [] if table.x == NO_X else [value]
