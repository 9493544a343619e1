"""Runs of ``fairseq-collab glue`` in one table, like the paper's: a row a model, a column a task.

A cell has the task's metrics, means over seeds; the average is the mean of all numbers in the row
(two of a task with two metrics), as the paper's own is, where no task of the table is missing.
Published rows stand below: of other trainings, so that only *change*, the average less that of the
same model before the swap, may be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.adapters.glue.tasks import TASKS
from fairseq_collab.results import published
from fairseq_collab.results.html import render
from fairseq_collab.results.rows import (
    Finished,
    check_same,
    distinct,
    finished_runs,
    grouped,
    seeds_of_one,
)
from fairseq_collab.results.tables import grid, mean, num, spread, versions_text
from fairseq_collab.runs.run import find_runs

VERSION = 1
#: The row that others are compared with: heads as they were trained, fine-tuned once.
WHOLE = "concatenated"
FOLDERS = {task.folder: name for name, task in TASKS.items()}
#: A row: architecture, method, key dimension.
Model = tuple[str, str, int]


def read(folders: Sequence[Path]) -> tuple[list[Finished], list[str]]:
    """Finished runs on GLUE, and a line for each of the others.

    Raises UserError for runs of another kind, on other files, and of two models under one name.
    """
    finished, unfinished = finished_runs(find_runs(folders))
    for run in finished:
        if run.record.task != "classification":
            todo = "give runs of fairseq-collab glue; others have fairseq-collab table"
            raise UserError(f"is a run of {run.record.task}", run.folder, todo)
    for alike in grouped(finished, _model).values():
        check_same(alike, ["attention_parameters"], todo="name one with --method")
    for alike in grouped(finished, lambda run: run.record.data).values():
        check_same(alike, ["data_sha256"], todo="make a table of each")
    return finished, unfinished


def _model(run: Finished) -> Model:
    return run.record.arch, run.record.method, run.record.key_dim or 0


def models(runs: Sequence[Finished]) -> dict[Model, dict[str, tuple[Finished, ...]]]:
    """The seeds of each task by model: whole ones first, then by falling key dimension."""
    groups = grouped(runs, lambda run: (_model(run), FOLDERS[run.record.data]))
    order = sorted({_model(run) for run in runs}, key=lambda m: (m[0], m[1] != WHOLE, -m[2], m[1]))
    return {
        model: {
            task: seeds_of_one(groups[model, task]) for task in TASKS if (model, task) in groups
        }
        for model in order
    }


def metrics(task: str, runs: Sequence[Finished]) -> list[list[float]]:
    """The values of each of the task's metrics, one a seed."""
    return [[(run.record.glue or {})[name] for run in runs] for name in TASKS[task].metrics]


def average(tasks: Mapping[str, Sequence[Finished]], wanted: Sequence[str]) -> float | None:
    """The mean of all numbers of a row; None where a task is missing."""
    if set(wanted) - tasks.keys():
        return None
    return mean(statistics.fmean(one) for name in wanted for one in metrics(name, tasks[name]))


def ours(runs: Sequence[Finished]) -> str:
    """The table of our runs."""
    found = models(runs)
    columns = [name for name in TASKS if any(name in tasks for tasks in found.values())]
    averages = {model: average(tasks, columns) for model, tasks in found.items()}
    lines = []
    for (arch, method, key_dim), tasks in found.items():
        whole = next((a for m, a in averages.items() if m[:2] == (arch, WHOLE)), None)
        value = averages[arch, method, key_dim]
        change = None if value is None or whole is None else value - whole
        record = next(iter(tasks.values()))[0].record
        seeds = sorted({str(len(of)) for of in tasks.values()})
        cells = [
            "/".join(spread(one, ".1f") for one in metrics(name, tasks[name]))
            if name in tasks
            else "-"
            for name in columns
        ]
        counts = [num(record.parameters), num(record.attention_parameters)]
        shown = [num(value, ".1f"), "" if method == WHOLE else num(change, "+.1f")]
        lines.append([arch, method, key_dim, *counts, " to ".join(seeds), *cells, *shown])
    heads = ["model", "method", "K", "parameters", "of queries, keys, values", "seeds"]
    heads += [*(TASKS[name].folder for name in columns), "average", "change"]
    return grid(heads, lines, left=(0, 1))


def theirs() -> str:
    """The published table."""
    columns = list(published.GLUE["models"][0]["scores"])
    whole = {one["model"]: one["average"] for one in published.GLUE["models"] if not one["key_dim"]}
    lines = [
        [
            *(one["model"], one["key_dim"] or "before the swap"),
            *("/".join(f"{value:.1f}" for value in one["scores"][name]) for name in columns),
            f"{one['average']:.1f}",
            f"{one['average'] - whole[one['model']]:+.1f}" if one["key_dim"] else "",
        ]
        for one in published.GLUE["models"]
    ]
    heads = ["model", "K", *(TASKS[name].folder for name in columns), "average", "change"]
    return grid(heads, lines)


def markdown(runs: Sequence[Finished], unfinished: Sequence[str]) -> str:
    """The whole of ``table.md``."""
    there = {FOLDERS[run.record.data] for run in runs}
    return render(
        "glue.md.j2",
        ours=ours(runs),
        theirs=theirs(),
        source=published.GLUE["source"],
        metrics={TASKS[name].folder: TASKS[name].metrics for name in TASKS if name in there},
        unfinished=unfinished,
        trainings=distinct(
            runs, lambda r: f"{r.data}: {r.epochs} epochs, {r.train_updates:,} updates"
        ),
        versions=distinct(runs, lambda r: versions_text(r.versions)),
        hardware=distinct(runs, lambda r: r.hardware),
        commits=distinct(runs, lambda r: f"{r.commit}, {r.date}"),
        seeds=distinct(runs, lambda r: r.seed),
    )


def content(runs: Sequence[Finished]) -> dict[str, Any]:
    """What a page of results is rendered from: the facts of all runs."""
    return {"version": VERSION, "runs": [run.facts() for run in runs]}
