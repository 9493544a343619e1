"""A table of runs as Markdown: one row a model, its differences from a baseline, one row a run.

Columns are fields of the runs' records, ``rouge.R1`` inside one, or choices of a sweep.  Scores and
speeds are means over seeds, with their standard deviation; what a model costs is the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.metrics.rouge import Interval
from fairseq_collab.results import against, published
from fairseq_collab.results.rows import Row, distinct, warnings
from fairseq_collab.results.table_content import Table, deviation, mean, paper_bleu
from fairseq_collab.results.tables import grid
from fairseq_collab.runs.record import Record

NOTHING = "-"
PAPER = "paper"
COSTS = ("parameters", "key_bytes_per_target_token", "multiply_adds", "train_tokens_per_second")
#: The columns that a table has where none are chosen, after what the task is measured by.
COLUMNS = {
    "translation": ("chrf", "compound_split_bleu", *COSTS, PAPER),
    "summarization": ("rouge.R2", "rouge.RL", *COSTS),
    "language_modeling": ("perplexity.valid", *COSTS),
}
#: Headings of fields whose names do not say enough.
HEADINGS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "compound_split_bleu": "tokenised compound-split BLEU (not comparable with BLEU)",
    "tokenised_bleu": "BLEU of tokens (not comparable with BLEU)",
    "key_bytes_per_target_token": "key-cache bytes a target token (all decoder layers)",
    "train_tokens_per_second": "training tokens/s",
    "valid_loss": "valid. loss",
    "valid_nats": "valid. nats/token",
    "train_updates": "updates",
    PAPER: published.COLUMN,
}


def columns_of(table: Table) -> tuple[str, ...]:
    """The columns that were chosen, or those of the task.

    Raises:
        UserError: no run has such a field, nor such a choice.
    """
    if not table.columns:
        there = dict.fromkeys((table.score, *COLUMNS[table.finished[0].record.task]))
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
        length = table.finished[0].record.multiply_adds_length
        return f"multiply-adds ({length} source, {length} target tokens)"
    return HEADINGS.get(name) or name.removeprefix("rouge.").replace("_", " ").replace(".", ", ")


def cell(table: Table, row: Row, name: str) -> str:
    """What a column says of a row."""
    if name == PAPER:
        return decimals(paper_bleu(table, row))
    return text_of(row.values(name))


def text_of(values: Sequence[Any]) -> str:
    """Values of the seeds in one cell."""
    if not values:
        return NOTHING
    if isinstance(values[0], Interval):
        return str(values[0]) if len(values) == 1 else spread([value.mean for value in values])
    if isinstance(values[0], float):
        return spread(values)
    if isinstance(values[0], int):
        return whole(mean(values))
    return "; ".join(sorted(set(map(_plain, values))))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}: {_plain(part)}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation; for one seed its value alone."""
    text = decimals(mean(values))
    sd = deviation(values)
    return text if sd is None else f"{text} ± {sd:.2f}"


def decimals(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def markdown(table: Table) -> str:
    """The whole of ``table.md``."""
    note = NOTES[table.finished[0].record.task]
    lines = [f"# {table.title}", "", *main_table(table), "", note, ""]
    lines += _section("Warnings", warnings(table.finished))
    lines += _section("Not in the table", left_out(table))
    if table.baseline:
        lines += against.markdown(table.differences, table.baseline, table.noun)
    lines += ["## Runs", "", *run_table(table), ""]
    lines += _section("Sources", sources(table))
    return "\n".join(lines).rstrip("\n") + "\n"


_COSTS = (
    "±: standard deviation over seeds (n - 1). Multiply-adds: one full forward pass of a sentence "
    "pair. Caches: single precision, one target token of one sentence."
)
NOTES = {
    "translation": f"BLEU, chrF: sacreBLEU on detokenised, cased text; {_COSTS}",
    "summarization": "R1, R2, RL: ROUGE, F-measures, mean over summaries; in brackets the 95 % "
    f"interval of a bootstrap over summaries. {_COSTS}",
    "language_modeling": f"Perplexity a word, ends of lines counted as words. {_COSTS}",
}


def main_table(table: Table) -> list[str]:
    """One line a row."""
    shown = columns_of(table)
    x = [table.noun] if table.noun else []
    lines = []
    for row in table.rows:
        cells = [cell(table, row, name) for name in shown]
        if not row.runs:  # said once, in the place of the score
            cells[0] = table.empty
        lines.append([row.label, *([str(row.x)] if x else []), str(len(row.runs)), *cells])
    heads = ["method", *x, "seeds", *(heading(table, name) for name in shown)]
    return grid(heads, lines).split("\n")


def run_table(table: Table) -> list[str]:
    """One line a run."""
    x = [table.noun] if table.noun else []
    score = heading(table, table.score)
    heads = ["run", "method", *x, "seed", score, "valid. loss", "updates", "epochs"]
    lines = []
    for row in table.rows:
        for seed, run in enumerate(row.runs):
            record = run.record
            values = row.values(table.score)
            lines.append(
                [
                    *(run.name, row.label, *([str(row.x)] if x else []), record.seed),
                    *(text_of(values[seed : seed + 1]), f"{record.valid_loss:.3f}"),
                    *(whole(record.train_updates), record.epochs, record.date),
                    record.trained_at_commit or record.commit,
                ]
            )
    heads += ["date", "commit"]
    return grid(heads, lines, left=(0, 1, len(heads) - 2, len(heads) - 1)).split("\n")


def left_out(table: Table) -> list[str]:
    """Runs that are not finished, and runs without ``x``, by name."""
    return [*table.unfinished, *(f"{run.name}: has no {table.x}" for run in table.without_x)]


def sources(table: Table) -> list[str]:
    """Where every number comes from."""
    first = table.finished[0].record
    files = ", ".join(f"`{name}`" for name in table.score_files)
    found = [f"command: `{table.command}`, from the runs' {files}"]
    for name, signature in (
        ("BLEU", first.bleu_signature),
        ("chrF", first.chrf_signature),
        ("tokenised compound-split BLEU", first.compound_split_signature),
        ("ROUGE", first.rouge_signature),
    ):
        found += [f"{name}: `{signature}`"] if signature else []
    found.append(f"data: {first.data}, SHA-256 {first.data_sha256}")
    for name, value in (
        ("translated with", _decoding),
        ("versions", lambda record: ", ".join(f"{k} {v}" for k, v in record.versions.items())),
        ("hardware", lambda record: record.hardware),
    ):
        found.append(f"{name}: {'; '.join(distinct(table.finished, value))}")
    return found + ([f"paper: {published.SOURCE}"] if PAPER in columns_of(table) else [])


def _decoding(record: Record) -> str:
    beam = "" if record.beam is None else f"beam {record.beam}, lenpen {record.lenpen}, "
    return f"{beam}{len(record.averaged)} checkpoints averaged"


def _section(title: str, items: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {item}" for item in items), ""] if items else []
