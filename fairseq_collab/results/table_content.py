"""What a table holds: runs grouped to rows, tested against a baseline, and as CSV."""

from __future__ import annotations

import csv
import io
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_collab.results import against, published
from fairseq_collab.results.rows import NO_X, Finished, Row, finished_runs, rows
from fairseq_collab.runs.run import Run, find_runs

NOUNS = {"key_dim": "key dimension", "head_size": "head size", "heads": "heads"}
#: What each task is measured by: a field of the record, and its name.
SCORE_FIELDS = {
    "translation": "bleu",
    "summarization": "rouge.R1",
    "language_modeling": "perplexity.{subset}",
}
SCORE_NAMES = {
    "translation": "BLEU",
    "summarization": "ROUGE-1",
    "language_modeling": "Perplexity",
}
#: With a mean and a standard deviation over seeds each.
SCORES = ("bleu", "chrf", "compound_split_bleu", "train_tokens_per_second")
#: The same for all seeds.
COSTS = (
    "parameters", "attention_parameters", "key_bytes_per_target_token",
    "value_bytes_per_target_token", "multiply_adds",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """All that is printed; ``facts`` are what the runs share, ``x`` what the table varies.

    With ``x`` = ``none`` it has a row a method and its choices, and no column for ``x``.
    """

    x: str
    rows: list[Row]
    finished: list[Finished]  # those in rows
    unfinished: list[str]
    without_x: list[Finished]
    baseline: str | None
    differences: list[against.Difference]
    command: str
    columns: tuple[str, ...] = ()  # those of the task, where none are chosen

    @property
    def score(self) -> str:
        """The field that the task is measured by."""
        first = self.finished[0].record
        return SCORE_FIELDS[first.task].format(subset=first.subset)

    @property
    def score_files(self) -> list[str]:
        """Names of the runs' files that all is read from."""
        runs = (Run(run.folder, run.subset) for run in self.finished)
        return sorted({run.score_file.name for run in runs})

    @property
    def noun(self) -> str | None:
        """What ``x`` is called; None where there is none."""
        return None if self.x == NO_X else NOUNS.get(self.x, self.x)

    @property
    def empty(self) -> str:
        """What a cell without runs is: a failed run's method is not known from its scores."""
        return "no finished run" if self.unfinished else "not run"

    @property
    def title(self) -> str:
        first = self.finished[0].record
        sentences = "" if first.sentences is None else f" ({first.sentences:,} sentences)"
        return (
            f"{SCORE_NAMES[first.task]} against {self.noun or 'parameters'}: "
            f"{first.data}, {first.subset}{sentences}"
        )


def read_table(
    folders: Sequence[Path],
    x: str = "key_dim",
    baseline: str | None = None,
    subset: str | None = None,
    columns: tuple[str, ...] = (),
) -> Table:
    """Collect runs, group them by method and ``x``, and test them against the baseline.

    Args:
        folders: runs, or folders of runs
        x: a field of ``score.json``, a choice of the sweep, or "none"
        baseline: the method to test against, "none" for no tests; None for concatenated heads
        subset: the test set; None for each run's own
        columns: fields of the records; none for those of the task

    Raises:
        UserError: there are no finished runs, or they cannot stand in one table.
    """
    finished, unfinished = finished_runs(run.for_subset(subset) for run in find_runs(folders))
    found, without_x = rows(finished, x)
    translates = finished[0].record.bleu is not None
    chosen = against.choose_baseline(found, baseline) if translates or baseline else None
    arguments = sorted(str(folder) for folder in folders)
    options = ["--x", x] + (["--against", baseline] if baseline else [])
    options += ["--gen-subset", subset] if subset else []
    options += ["--columns", ",".join(columns)] if columns else []
    return Table(
        x=x,
        rows=found,
        finished=[run for run in finished if run not in without_x],
        unfinished=unfinished,
        without_x=without_x,
        baseline=chosen,
        differences=against.differences(found, chosen) if chosen else [],
        command=shlex.join(["fairseq-collab", "table", *arguments, *options]),
        columns=columns,
    )


def paper_bleu(table: Table, row: Row) -> float | None:
    """The published BLEU of the same method at the same ratio d/K; None if there is none.

    The ratio is that of the value to the key cache: values are d wide in both methods.  A row that
    was not run has it from the other method's.
    """
    there = next((other for other in table.rows if other.x == row.x and other.runs), None)
    if table.x != "key_dim" or there is None:
        return None
    values = there.fact("value_bytes_per_target_token")
    reduction = values / there.fact("key_bytes_per_target_token")
    return published.counterpart(row.method.removeprefix("fork_"), reduction)


def mean(values: Sequence[float]) -> float | None:
    """The mean, None of nothing."""
    return statistics.fmean(values) if values else None


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation, None of fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def as_csv(table: Table) -> str:
    """One line a row, unrounded; empty where there is nothing."""
    tested = {id(found.row): found for found in table.differences}
    lines = [_csv_row(table, row, tested.get(id(row))) for row in table.rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, lines[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _csv_row(table: Table, row: Row, tested: against.Difference | None) -> dict[str, Any]:
    low, high = (tested and tested.interval) or (None, None)
    first = table.finished[0].record
    spreads: dict[str, float | None] = {}
    chosen = (name for name in table.columns if name not in (*SCORES, *COSTS))
    for field in (*SCORES, *filter(lambda name: _is_number(table, name), chosen)):
        name = field.replace("compound", "tokenised_compound")
        spreads[f"{name}_mean"] = mean(row.values(field))
        spreads[f"{name}_sd"] = deviation(row.values(field))
    return {
        "method": row.label,
        **({table.x: row.x} if table.noun else {}),
        "status": "finished" if row.runs else table.empty,
        "seeds": " ".join(str(run.record.seed) for run in row.runs),
        **spreads,
        **{field: row.fact(field) for field in COSTS},
        "multiply_adds_length": first.multiply_adds_length,
        "wmt14_paper_bleu_same_ratio": paper_bleu(table, row),
        "baseline": table.baseline if tested else None,
        "bleu_difference": tested.mean if tested else None,
        "bleu_difference_low": low,
        "bleu_difference_high": high,
        "p_of_seeds": against.ps(tested) if tested else None,
        "data": first.data,
        "subset": first.subset,
        "bleu_signature": first.bleu_signature,
    }


def _is_number(table: Table, name: str) -> bool:
    return all(isinstance(value, (int, float)) for row in table.rows for value in row.values(name))
