"""What the report says, before it is a page: ``report.json``.

version, command, made {commit, versions}, samples, seed
sections    one a data set: runs whose scores compare
    data, data_sha256, subset, sentences, signatures, multiply_adds_length, reference_sha256, seeds
    rows        a model each, mean over its seeds, numbered from 1; heads_in_all: of each seed
    budgets     which rows were trained alike, with ``best`` and Pareto ``fronts``; fine-tuned rows
                also lie in one ``folder``
    curves      validation losses of every run, by row
    tests       every row against the best of its budget, paired
    papers      what papers gain, beside what ours gain
    runs, commands, warnings
left_out    runs that are not finished, and why

Numbers are rounded to six digits behind the point, so that no last bit of a processor shows.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from collab_common.progress import bar
from collab_common.provenance import PACKAGES, commit, versions
from fairseq_collab.metrics.significance import METRICS, seed
from fairseq_collab.results import published
from fairseq_collab.results.against import SAMPLES
from fairseq_collab.results.report import budget
from fairseq_collab.results.report.find import command_text, find, names, portable
from fairseq_collab.results.report.significance import DIGITS, against_best
from fairseq_collab.results.rows import (
    NO_X,
    SAME_IN_TABLE,
    Finished,
    Row,
    finished_runs,
    grouped,
    rows,
    warnings,
)
from fairseq_collab.results.tables import deviation
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.train_log import entries as log_entries
from fairseq_collab.runs.translations import System, read_system

VERSION = 2
#: Of a row; None where an old ``score.json`` lacks one.
FACTS = (
    "arch", "heads", "key_dim", "parameters", "attention_parameters", "multiply_adds",
    "key_bytes_per_target_token", "value_bytes_per_target_token",
    "key_bytes_per_source_token", "value_bytes_per_source_token",
)  # fmt: skip
#: Negative log-likelihood of a target token, in bits: without label smoothing and penalties.
LOSS = "valid_nll_loss"

Content = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Entry(Finished):
    """A finished run with its translations.

    Attributes:
        place: its name, with that of its experiment, the folder around it.
    """

    place: str
    system: System

    @property
    def run(self) -> Run:
        return Run(self.folder)

    @property
    def reference_sha256(self) -> str:
        return hashlib.sha256("\n".join(self.system.references).encode()).hexdigest()


def collect(folders: Sequence[Path], out: str) -> Content:
    """Read, score and compare all runs below the folders; ``out`` is what the page is called."""
    places, strays = find(folders)
    named = {run.folder: place for place, run in places.items()}
    finished, _ = finished_runs(places.values())
    entries = [
        Entry(run.folder, run.record, place=named[run.folder], system=read_system(run.folder))
        for run in bar("reading", finished)
    ]
    groups = grouped(
        entries,
        lambda one: (*(str(getattr(one.record, x)) for x in SAME_IN_TABLE), one.reference_sha256),
    )
    waiting = [
        f"{place}: {portable(run.state())}"
        for place, run in places.items()
        if run.verdict() != "finished"
    ]
    shown = names(folder.resolve() for folder in folders)
    return {
        "version": VERSION,
        "command": f"fairseq-collab report {' '.join(sorted(shown.values()))} --out {out}",
        "made": {"commit": commit(), "versions": versions(*PACKAGES)},
        "samples": SAMPLES,
        "seed": seed(),
        "sections": [section(groups[key]) for key in sorted(groups)],
        "left_out": [*waiting, *strays],
    }


def section(entries: Sequence[Entry]) -> Content:
    """All that is said of one data set: of the same data, subset and reference, scored alike."""
    made: list[Content] = []
    curves: list[Content] = []
    numbered: list[tuple[int, Entry]] = []  # every run with the number of its row
    for experiment, runs in groupby(entries, key=lambda entry: entry.place.rpartition("/")[0]):
        for row in rows([*runs], NO_X)[0]:
            number, seeds = len(made) + 1, cast(tuple[Entry, ...], row.runs)
            made.append({"number": number, "experiment": experiment, **_row(row, seeds)})
            points = [{"seed": one.record.seed, "points": curve(one.run)} for one in seeds]
            curves.append({"row": number, "runs": points})
            numbered += [(number, entry) for entry in seeds]
    budgets = budget.budgets(made)
    systems = {(number, entry.record.seed): entry.system for number, entry in numbered}
    return {
        **{field: getattr(entries[0].record, field) for field in SAME_IN_TABLE},
        "reference_sha256": entries[0].reference_sha256,
        "seeds": sorted({entry.record.seed for entry in entries}),
        "rows": made,
        "budgets": budgets,
        "curves": curves,
        "tests": [
            pair for group in bar("testing", budgets) for pair in against_best(group, made, systems)
        ],
        "papers": published.beside(made),
        "runs": [_run(number, entry) for number, entry in numbered],
        "commands": _commands(entries),
        "warnings": warnings(entries, budgets=False),
    }


def _row(row: Row, seeds: Sequence[Entry]) -> Content:
    reduction = seeds[0].record.reduction
    return {
        "method": row.method,
        "variant": portable(row.variant),
        "label": portable(row.label),
        "seeds": [entry.record.seed for entry in seeds],
        **{name: _score(row.values(name)) for name in map(str.lower, METRICS)},
        **{field: row.fact(field) for field in FACTS},
        "heads_in_all": [sum(map(sum, shape.values())) for shape in row.values("heads_by_site")],
        "reduction": None if reduction is None else round(reduction, DIGITS),
        "head_ratio": _head_ratio(seeds[0]),
        "train_tokens_per_second": _mean(row.values("train_tokens_per_second")),
        "sentences_per_second": _mean([entry.record.sentences_per_second for entry in seeds]),
        "epochs": [of(row.values("epochs")) for of in (min, max)],
        "updates": [of(row.values("train_updates")) for of in (min, max)],
        "fine_tuned": budget.fine_tuned(seeds[0].run),
    }


def _score(values: Sequence[float]) -> Content:
    """The mean over seeds; its interval comes from the tests."""
    sd = deviation(values)
    return {
        "mean": _mean(values),
        "low": None,
        "high": None,
        "sd": None if sd is None else round(sd, DIGITS),
        "values": [round(value, DIGITS) for value in values],
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Of all seeds; None unless every one has a value."""
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), DIGITS) if values and known == [*values] else None


def _head_ratio(entry: Entry) -> float | None:
    """Head size / (d/H), where the sweep varied head sizes; keys are H * head size wide."""
    width = OmegaConf.select(entry.run.config(), "model.decoder_embed_dim")
    key_dim = entry.record.key_dim
    if entry.overridden("head_size") is None or not width or not key_dim:
        return None
    return round(key_dim / width, DIGITS)


def curve(run: Run) -> list[list[float]]:
    """[updates, validation loss in bits per token] of every validation; [] where no log has one.

    A training that was interrupted validates some updates again: the last time counts.
    """
    points = {
        int(found["valid_num_updates"]): float(found[LOSS])
        for found in log_entries(run.log, "valid")
        if LOSS in found and "valid_num_updates" in found
    }
    return [[updates, loss] for updates, loss in sorted(points.items()) if math.isfinite(loss)]


def _run(row: int, entry: Entry) -> Content:
    record = entry.record
    return {
        "row": row,
        "name": entry.place,
        "seed": record.seed,
        **{name: round(getattr(record, name), DIGITS) for name in map(str.lower, METRICS)},
        "valid_loss": record.valid_loss,
        "updates": record.train_updates,
        "epochs": record.epochs,
        "averaged": len(record.averaged),
        "beam": record.beam,
        "lenpen": record.lenpen,
        "date": record.date,
        "hardware": record.hardware,
        "versions": record.versions,
        "trained_at_commit": record.trained_at_commit,
        "scored_at_commit": record.commit,
    }


def _commands(entries: Sequence[Entry]) -> list[Content]:
    """Every command that started runs, with their names."""
    found = grouped(entries, lambda one: command_text(one.record.command) or "not recorded")
    return [
        {"command": text, "runs": sorted(entry.place for entry in found[text])}
        for text in sorted(found)
    ]
