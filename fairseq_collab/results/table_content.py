"""What a table holds: runs grouped to rows, tested against a baseline; as CSV, and as JSON.

The JSON stands beside a page of results, which is rendered from it without the runs: it has the
runs' facts and the p of their tests; all else is computed again.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.results import against, published
from fairseq_collab.results.rows import NO_X, Finished, Row, finished_runs, grouped, rows
from fairseq_collab.results.tables import csv_text, deviation, mean
from fairseq_collab.runs.record import Record
from fairseq_collab.runs.run import find_runs

NOUNS = {
    "key_dim": "key dimension",
    "head_size": "head size",
    "heads": "heads",
    "cache_bytes_per_target_token": "bytes of cache per target token",
}
#: What each task is measured by: a field of the record, and its name.
MEASURED = {
    "translation": ("bleu", "BLEU"),
    "language_modeling": ("perplexity.{subset}", "Perplexity"),
}
#: With a mean and a standard deviation over seeds each.
SCORES = ("bleu", "chrf", "compound_split_bleu", "train_tokens_per_second")
#: The same for all seeds, or a mean (:meth:`.Row.fact`).
COSTS = (
    "parameters", "attention_parameters", "key_bytes_per_target_token",
    "value_bytes_per_target_token", "multiply_adds",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """All that is printed of runs.

    Attributes:
        x: what the table varies; with :data:`NO_X` it has a row a method and its choices.
        finished: the runs in ``rows``.
        without_x: finished runs in none; ``unfinished``: a line for each of the others.
        columns: those that were chosen; none for those of the task.
        drawn: the field that the figure shows; None for what the task is measured by.
    """

    x: str
    rows: list[Row]
    finished: list[Finished]
    without_x: list[Finished]
    baseline: str | None
    differences: list[against.Difference]
    unfinished: Sequence[str] = ()
    command: str = ""
    columns: tuple[str, ...] = ()
    drawn: str | None = None

    @property
    def first(self) -> Record:
        """For what all runs share."""
        return self.finished[0].record

    @property
    def score(self) -> str:
        """The field that the task is measured by."""
        return MEASURED[self.first.task][0].format(subset=self.first.subset)

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
        return f"{MEASURED[self.first.task][1]} against {self.subject}"

    @property
    def subject(self) -> str:
        """What varies, and the data."""
        first = self.first
        sentences = "" if first.sentences is None else f" ({first.sentences:,} sentences)"
        return f"{self.noun or 'parameters'}: {first.data}, {first.subset}{sentences}"


def read_table(
    folders: Sequence[Path],
    x: str = "key_dim",
    baseline: str | None = None,
    columns: tuple[str, ...] = (),
    drawn: str | None = None,
) -> Table:
    """Collect runs, group them by method and ``x``, and test them against the baseline.

    Args:
        x: a field of ``score.json``, a choice of the sweep, or "none"
        baseline: the method to test against, "none" for no tests; None for concatenated heads
        columns, drawn: as of :class:`Table`
    """
    finished, unfinished = finished_runs(find_runs(folders))
    options = {
        "--x": x,
        "--against": baseline,
        "--columns": ",".join(columns),
        "--figure": drawn,
    }
    given = [word for name, value in options.items() if value for word in (name, value)]
    command = shlex.join(["fairseq-collab", "table", *sorted(map(str, folders)), *given])
    kept = {"unfinished": unfinished, "command": command, "columns": columns, "drawn": drawn}
    return _table(finished, x, baseline, against.bootstrap, **kept)


def table_of(content: dict[str, Any], command: str = "") -> Table:
    """The table that :func:`content_of` has kept; only its p values are taken over."""
    finished = [
        Finished(Path(name), Record.of(facts, Path(name)))
        for name, facts in content["runs"].items()
    ]
    baseline, p = content["baseline"] or against.NO_TEST, content["p"]
    return _table(finished, content["x"], baseline, lambda _, run: p[run.name], command=command)


def _table(
    finished: list[Finished], x: str, wanted: str | None, p: against.P, **kept: Any
) -> Table:
    found, without_x = rows(finished, x)
    translates = finished[0].record.bleu is not None
    if not translates and wanted not in (None, against.NO_TEST):
        todo = "leave it out: a table of these runs has no tests"
        raise UserError("differences are of BLEU, which the runs have not", "--against", todo)
    baseline = against.choose_baseline(found, wanted) if translates else None
    tested = against.differences(found, baseline, p) if baseline else []
    placed = [run for run in finished if run not in without_x]
    return Table(x, found, placed, without_x, baseline, tested, **kept)


def content_of(table: Table) -> dict[str, Any]:
    """A table as it stands in the JSON; UserError for two runs of one name."""
    for one, *others in grouped(table.finished, lambda run: run.name).values():
        for twin in others:
            todo = "rename one, or make a table of each folder"
            raise UserError(f"has a run of the same name as {one.folder}", twin.folder, todo)
    return {
        "x": table.x,
        "baseline": table.baseline,
        "runs": {run.name: run.facts() for run in table.finished},
        "p": {
            run.name: p
            for found in table.differences
            for run in found.row.runs
            for seed, p in found.p
            if seed == run.record.seed  # of a row without a baseline none is there
        },
    }


def paper_bleu(table: Table, row: Row) -> float | None:
    """The published BLEU of the same method at the same ratio d/K; None if there is none.

    A row that was not run has the ratio from the other method's.
    """
    there = next((other for other in table.rows if other.x == row.x and other.runs), None)
    if table.x != "key_dim" or there is None:
        return None
    reduction = there.runs[0].record.reduction
    return reduction and published.counterpart(row.method.removeprefix("fork_"), reduction)


def as_csv(table: Table) -> str:
    """One line a row, scores unrounded; empty where there is nothing."""
    tested = {id(found.row): found for found in table.differences}
    return csv_text([_csv_row(table, row, tested.get(id(row))) for row in table.rows])


def _csv_row(table: Table, row: Row, tested: against.Difference | None) -> dict[str, Any]:
    low, high = (tested and tested.interval) or (None, None)
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
        "multiply_adds_length": table.first.multiply_adds_length,
        "wmt14_paper_bleu_same_ratio": paper_bleu(table, row),
        "baseline": table.baseline if tested else None,
        "bleu_difference": tested.mean if tested else None,
        "bleu_difference_low": low,
        "bleu_difference_high": high,
        "p_over_seeds": tested.seeds_p if tested else None,
        "p_over_seeds_holm": tested.holm_p if tested else None,
        "p_of_seeds": tested.p_text if tested else None,
        "data": table.first.data,
        "subset": table.first.subset,
        "bleu_signature": table.first.bleu_signature,
    }


def _is_number(table: Table, name: str) -> bool:
    return all(isinstance(value, (int, float)) for row in table.rows for value in row.values(name))
