"""What the report says, before it is a page: ``report.json``.

version, command, made {commit, versions}, samples, seed
sections    one a data set: runs whose scores compare
    data, data_sha256, subset, sentences, signatures, multiply_adds_length, reference_sha256, seeds
    rows        a model each, mean over its seeds, numbered from 1
    budgets     which rows were trained alike; ``best`` and Pareto ``fronts`` among these
    curves      validation losses of every run, by row
    tests       every two rows, paired
    papers      what papers gain, beside what ours gain
    runs, commands, warnings, notes
left_out    runs that are not finished, and why

Numbers are rounded to six digits behind the point, so that no last bit of a processor shows.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from collab_common.provenance import commit, versions
from fairseq_collab.metrics.provenance import PACKAGES
from fairseq_collab.metrics.significance import METRICS, seed
from fairseq_collab.results.against import SAMPLES
from fairseq_collab.results.report import budget, curves, matrix, notes, papers
from fairseq_collab.results.report.bootstrap import (
    Interval,
    Scored,
    draws,
    interval,
    paired_p,
    resample,
)
from fairseq_collab.results.report.find import Place, find, names, portable
from fairseq_collab.results.report.matrix import DIGITS
from fairseq_collab.results.report.origins import commands, of_run
from fairseq_collab.results.rows import (
    NO_X,
    SAME_IN_TABLE,
    Finished,
    Row,
    finished_runs,
    rows,
    warnings,
)
from fairseq_collab.runs.fairseq_output import decoding_speed
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.translations import read_system

VERSION = 1
#: The same for all seeds of a row; None where an old ``score.json`` lacks one.
SHARED = (
    "arch", "heads", "key_dim", "parameters", "attention_parameters", "multiply_adds",
    "key_bytes_per_target_token", "value_bytes_per_target_token",
    "key_bytes_per_source_token", "value_bytes_per_source_token",
)  # fmt: skip

Content = dict[str, Any]
#: Called with a finished step's name: a run that was scored.
Progress = Callable[[str], object]


@dataclass(frozen=True)
class Entry:
    """A finished run with its translations, scores on all draws, and name."""

    place: Place
    finished: Finished
    scored: Scored

    @property
    def reference_sha256(self) -> str:
        text = "\n".join(self.scored.system.references)
        return hashlib.sha256(text.encode()).hexdigest()


def collect(folders: Sequence[Path], out: str, start: Callable[[int], Progress]) -> Content:
    """Read, score and compare all runs below the folders.

    Args:
        out: what the page is called, for the command
        start: gets the number of runs, gives what is called after each

    Raises:
        UserError: there are no finished runs, or one cannot be read or does not have the score that
            it recorded.
    """
    places, strays = find(folders)
    named = {place.run.folder: place for place in places}
    finished, _ = finished_runs([place.run for place in places])
    entries = list(_entries(finished, named, start(len(finished))))
    shown = names(folder.resolve() for folder in folders)
    return {
        "version": VERSION,
        "command": f"fairseq-collab report {' '.join(sorted(shown.values()))} --out {out}",
        "made": {"commit": commit(), "versions": versions(*PACKAGES)},
        "samples": SAMPLES,
        "seed": seed(),
        "sections": [section(group) for group in data_sets(entries)],
        "left_out": [*map(_unfinished, _waiting(places)), *strays],
    }


def _waiting(places: Iterable[Place]) -> list[Place]:
    return [place for place in places if place.run.verdict() != "finished"]


def _unfinished(place: Place) -> str:
    reason = place.run.reason()
    return f"{place.name}: {place.run.verdict()}" + (f" ({portable(reason)})" if reason else "")


def _entries(
    finished: Iterable[Finished], named: dict[Path, Place], done: Progress
) -> Iterable[Entry]:
    drawn: dict[int, Any] = {}
    for run in finished:
        system = read_system(run.folder)
        sentences = len(system.references)
        if sentences not in drawn:
            drawn[sentences] = draws(sentences)
        yield Entry(named[run.folder], run, Scored(system, resample(system, drawn[sentences])))
        done(run.name)


def data_sets(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Runs whose scores compare: of the same data, subset and reference, computed alike."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        facts = entry.finished.facts
        key = (*(str(facts[field]) for field in SAME_IN_TABLE), entry.reference_sha256)
        groups.setdefault(key, []).append(entry)
    return [groups[key] for key in sorted(groups)]


def section(entries: Sequence[Entry]) -> Content:
    """All that is said of one data set."""
    by_run = {entry.finished.folder: entry for entry in entries}
    facts = entries[0].finished.facts
    found = [
        (experiment, row)
        for experiment, group in _experiments(entries).items()
        for row in rows([entry.finished for entry in group], NO_X)[0]
    ]
    made = [
        _row(number, experiment, row, by_run) for number, (experiment, row) in enumerate(found, 1)
    ]
    scored = {
        (number, run.facts["seed"]): by_run[run.folder].scored
        for number, (_, row) in enumerate(found, 1)
        for run in row.runs
    }
    trained_alike = budget.budgets(made)
    for group in trained_alike:
        chosen = [row for row in made if row["number"] in group["rows"]]
        group["best"] = budget.best(chosen)
        group["fronts"] = {cost: budget.front(chosen, cost) for cost in budget.COSTS}
    content: Content = {
        **{field: facts[field] for field in SAME_IN_TABLE},
        "reference_sha256": entries[0].reference_sha256,
        "seeds": sorted({entry.finished.facts["seed"] for entry in entries}),
        "rows": made,
        "budgets": trained_alike,
        "curves": _curves(found, by_run),
        "tests": matrix.pairs(
            made, lambda one, other, of: paired_p(scored[one, of], scored[other, of])
        ),
        "papers": papers.beside(made),
        "runs": [
            of_run(number, by_run[run.folder].place.name, run.facts)
            for number, (_, row) in enumerate(found, 1)
            for run in row.runs
        ],
        "commands": commands((entry.place.name, entry.finished.facts) for entry in entries),
        "warnings": warnings([entry.finished for entry in entries]),
    }  # fmt: skip
    return {**content, "notes": notes.notes(content)}


def _experiments(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.place.experiment, []).append(entry)
    return groups


def _row(number: int, experiment: str, row: Row, by_run: dict[Path, Entry]) -> Content:
    entries = [by_run[run.folder] for run in row.runs]
    shared = {field: row.runs[0].facts.get(field) for field in SHARED}
    return {
        "number": number,
        "experiment": experiment,
        "method": row.method,
        "variant": portable(row.variant),
        "label": portable(row.label),
        "seeds": [run.facts["seed"] for run in row.runs],
        **{name.lower(): _score(name, entries) for name in METRICS},
        **shared,
        "reduction": _reduction(shared),
        "head_ratio": _head_ratio(row),
        "train_tokens_per_second": _mean(row.values("train_tokens_per_second")),
        "sentences_per_second": _mean(_speeds(entries)),
        "epochs": _range(row, "epochs"),
        "updates": _range(row, "train_updates"),
        "fine_tuned": budget.fine_tuned(entries[0].place.run),
    }


def _score(metric: str, entries: Sequence[Entry]) -> Content:
    seeds = [entry.scored.scores[metric] for entry in entries]
    found: Interval = interval(seeds)
    values = [one.score for one in seeds]
    return {
        "mean": round(found.mean, DIGITS),
        "low": round(found.low, DIGITS),
        "high": round(found.high, DIGITS),
        "sd": round(statistics.stdev(values), DIGITS) if len(values) > 1 else None,
        "values": [round(value, DIGITS) for value in values],
    }


def _reduction(facts: Content) -> float | None:
    """d/K: values are d wide in every method, so it is the ratio of value to key cache."""
    keys = facts["key_bytes_per_target_token"]
    return round(facts["value_bytes_per_target_token"] / keys, DIGITS) if keys else None


def _head_ratio(row: Row) -> float | None:
    """Head size / (d/H), where the sweep varied head sizes; keys are H * head size wide."""
    first = row.runs[0]
    width = OmegaConf.select(Run(first.folder).config(), "model.decoder_embed_dim")
    key_dim = first.facts["key_dim"]
    if first.overridden("head_size") is None or not width or not key_dim:
        return None
    return round(key_dim / width, DIGITS)


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), DIGITS) if values else None


def _speeds(entries: Sequence[Entry]) -> list[float]:
    """Sentences a second of all seeds; none unless every one is recorded."""
    found = [_speed(entry) for entry in entries]
    return [speed for speed in found if speed is not None] if None not in found else []


def _speed(entry: Entry) -> float | None:
    """By ``fairseq-generate``'s clock, from ``score.json`` or else from what it printed."""
    facts = entry.finished.facts
    if facts["sentences_per_second"] is not None:
        return facts["sentences_per_second"]
    printed = (entry.finished.folder / facts["hypotheses"]).read_text(encoding="utf-8")
    return decoding_speed(printed)


def _range(row: Row, field: str) -> list[int]:
    values = [run.facts[field] for run in row.runs]
    return [min(values), max(values)]


def _curves(found: Sequence[tuple[str, Row]], by_run: dict[Path, Entry]) -> list[Content]:
    return [
        {
            "row": number,
            "runs": [
                {"seed": run.facts["seed"], "points": curves.curve(by_run[run.folder].place.run)}
                for run in row.runs
            ],
        }
        for number, (_, row) in enumerate(found, 1)
    ]
