"""A table of runs as Markdown: one row a model, its differences from a baseline, one row a run.

Columns are fields of the runs' records, ``perplexity.test`` inside one, or choices of a sweep.
Scores and speeds are means over seeds, with their standard deviation; what a model costs is the
same for all, or a rounded mean where each seed has chosen its own heads.
The words around the tables stand in ``templates/table.md.j2``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.metrics.significance import seed
from fairseq_collab.results import against, published
from fairseq_collab.results.html import render
from fairseq_collab.results.rows import Row, distinct, warnings
from fairseq_collab.results.table_content import Table, paper_bleu
from fairseq_collab.results.tables import grid, mean, num, spread, versions_text
from fairseq_collab.runs.record import Record

PAPER = "paper"
COSTS = ("parameters", "key_bytes_per_target_token", "multiply_adds", "train_tokens_per_second")
#: The columns that a table has where none are chosen, after what the task is measured by.
COLUMNS = {
    "translation": ("chrf", *COSTS, PAPER),
    "language_modeling": ("perplexity.valid", *COSTS),
}
#: Headings of fields whose names do not say enough.
HEADINGS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "compound_split_bleu": "tokenised compound-split BLEU (not comparable with BLEU)",
    "tokenised_bleu": "BLEU of tokens (not comparable with BLEU)",
    "key_bytes_per_target_token": "key-cache bytes per target token (all decoder layers)",
    "cache_bytes_per_target_token": "self-attention's cache, bytes per target token",
    "cache_bytes_per_source_token": "cross-attention's cache, bytes per source token",
    "train_tokens_per_second": "training tokens/s",
    "valid_loss": "valid. loss (criterion, bits)",
    "valid_nats": "valid. nats/token",
    "train_updates": "updates",
    PAPER: published.COLUMN,
}


def columns_of(table: Table) -> tuple[str, ...]:
    """The columns that were chosen, which some run must have, or those of the task."""
    if not table.columns:
        there = dict.fromkeys((table.score, *COLUMNS[table.first.task]))
        has_paper = any(paper_bleu(table, row) is not None for row in table.rows)
        return tuple(name for name in there if name != PAPER or has_paper)
    for name in table.columns:
        if name != PAPER and not any(row.values(name) for row in table.rows):
            todo = "give a field of score.json, such as valid_loss, or a choice of the sweep"
            raise UserError(f"no run has {name!r}", where="--columns", todo=todo)
    return table.columns


def heading(table: Table, name: str) -> str:
    """What a column is called."""
    if name == "multiply_adds":
        length = table.first.multiply_adds_length
        if table.first.task == "language_modeling":
            return f"multiply-adds (a block of {length} tokens)"
        return f"multiply-adds ({length} source, {length} target tokens)"
    return HEADINGS.get(name) or name.replace("_", " ").replace(".", ", ")


def cell(table: Table, row: Row, name: str) -> str:
    """What a column says of a row."""
    if name == PAPER:
        return num(paper_bleu(table, row), ".2f")
    return text_of(row.values(name))


def text_of(values: Sequence[Any]) -> str:
    """Values of the seeds in one cell."""
    if not values:
        return num(None)
    if isinstance(values[0], float):
        return spread(values)
    if isinstance(values[0], int):
        return num(mean(values), ",.0f")
    return "; ".join(sorted(set(map(_plain, values))))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}: {_plain(part)}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def markdown(table: Table) -> str:
    """The whole of ``table.md``."""
    text = render(
        "table.md.j2",
        table=table,
        rows=main_table(table),
        warnings=warnings(table.finished),
        left_out=[*table.unfinished, *(f"{run.name}: has no {table.x}" for run in table.without_x)],
        differences=differences_table(table),
        samples=against.SAMPLES,
        seed=seed(),
        runs=run_table(table),
        decoding=distinct(table.finished, _decoding),
        versions=distinct(table.finished, lambda record: versions_text(record.versions)),
        hardware=distinct(table.finished, lambda record: record.hardware),
        paper=published.SOURCE if PAPER in columns_of(table) else None,
    )
    return text.rstrip("\n") + "\n"


def _decoding(record: Record) -> str:
    beam = "" if record.beam is None else f"beam {record.beam}, lenpen {record.lenpen}, "
    return f"{beam}{len(record.averaged)} checkpoints averaged"


def main_table(table: Table) -> str:
    """One line a row."""
    shown = columns_of(table)
    lines = []
    for row in table.rows:
        cells = [cell(table, row, name) for name in shown]
        if not row.runs:  # said once, in the place of the score
            cells[0] = table.empty
        lines.append([row.label, *_x(table, row.x), len(row.runs), *cells])
    heads = ["method", *_x(table, table.noun), "seeds", *(heading(table, name) for name in shown)]
    return grid(heads, lines)


def run_table(table: Table) -> str:
    """One line a run."""
    heads = ["run", "method", *_x(table, table.noun), "seed", heading(table, table.score)]
    heads += [heading(table, "valid_loss"), "updates", "epochs", "date", "commit"]
    lines = []
    for row in table.rows:
        scores = row.values(table.score)
        for number, run in enumerate(row.runs):
            record, score = run.record, text_of(scores[number : number + 1])
            numbers = [score, f"{record.valid_loss:.3f}", f"{record.train_updates:,}"]
            made = [record.epochs, record.date, record.trained_at_commit or record.commit]
            lines.append([run.name, row.label, *_x(table, row.x), record.seed, *numbers, *made])
    return grid(heads, lines, left=(0, 1, len(heads) - 2, len(heads) - 1))


def differences_table(table: Table) -> str:
    """What each row but the baseline's gains over it; empty where nothing is tested."""
    if not table.differences:
        return ""
    gain = f"BLEU more than {table.baseline}"
    heads = ["method", *_x(table, table.noun), "seeds in both", gain, "95 % interval over seeds"]
    heads += ["p over seeds (Holm)"]
    lines = [
        [
            *(found.row.label, *_x(table, found.row.x), len(found.p)),
            num(found.mean, "+.2f"),
            " to ".join(f"{end:+.2f}" for end in found.interval or ()) or num(None),
            num(None) if found.seeds_p is None else f"{found.seeds_p:.3f} ({found.holm_p:.3f})",
            found.reason or found.p_text,
        ]
        for found in table.differences
    ]
    return grid([*heads, "p of each seed"], lines, left=(0, len(heads)))


def _x(table: Table, value: Any) -> list[Any]:
    """A cell where rows have an ``x``, else none."""
    return [value] if table.noun else []
