"""Run folders to the rows of a table: what may stand together, and what is one model's seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeVar

from collab_common.errors import UserError
from fairseq_collab.runs.record import Record
from fairseq_collab.runs.run import Run

#: What all runs of a table must share: scores on other text, or computed otherwise, do not compare.
SAME_IN_TABLE = (
    "data", "data_sha256", "subset", "sentences", "bleu_signature", "chrf_signature",
    "multiply_adds_length",
)  # fmt: skip
#: What the runs of a row must share: else they are not seeds of one model. Where each training has
#: chosen its own heads, the first alone.
SAME_IN_ROW = (
    "arch", "heads", "parameters", "attention_parameters", "key_bytes_per_target_token",
    "value_bytes_per_target_token", "multiply_adds",
)  # fmt: skip
#: Of these, what an earlier version did not count in every model.
MAY_LACK = ("multiply_adds",)
#: How far the numbers of training updates may be apart without a warning.
BUDGET_TOLERANCE = 0.01

#: Sums of fields, by which tables know them: what decoding keeps of a token.
SUMS = {
    f"cache_bytes_per_{side}_token": tuple(
        f"{kind}_bytes_per_{side}_token" for kind in ("key", "value")
    )
    for side in ("target", "source")
}

#: What pages of results do not keep of a record: commands and paths say nothing that a table shows.
LEFT_OUT = ("command", "reference", "hypotheses")

T = TypeVar("T")
X = int | float | str
#: For ``--x``: nothing varies but the methods and their choices; every row's ``x`` is then empty.
NO_X = "none"
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Finished:
    """A finished run and its record."""

    folder: Path
    record: Record

    @property
    def name(self) -> str:
        return self.folder.name

    def facts(self) -> dict[str, Any]:
        """The record as plain values, as pages of results keep it."""
        return {name: fact for name, fact in asdict(self.record).items() if name not in LEFT_OUT}

    def overridden(self, name: str) -> str | None:
        """What the sweep chose for ``name``: a whole key, or the last part of one."""
        overrides = self.record.overrides
        for key in sorted(overrides):
            if name in (key, key.rsplit(".", 1)[-1]):
                return overrides[key]
        return None


@dataclass(frozen=True)
class Row:
    """The seeds of one model, by seed; none, if it was not run.

    Attributes:
        variant: the other choices that set it apart from rows of the same method, "" if none do.
        x: what the table varies, for example the key dimension; "" with :data:`NO_X`.
    """

    method: str
    variant: str
    x: X
    runs: tuple[Finished, ...] = ()

    @property
    def label(self) -> str:
        return ", ".join(filter(None, (self.method, self.variant)))

    def values(self, field: str) -> list[Any]:
        """A field of ``score.json`` for every seed; empty if some have none."""
        values = [value_of(run, field) for run in self.runs]
        return [] if None in values else values

    def fact(self, field: str) -> Any:
        """What a model is or costs: the same for all seeds, or the mean of whole numbers.

        None for a row that was not run, and where a seed has none.
        """
        values = [value_of(run, field) for run in self.runs]
        if field in MAY_LACK:
            values = [value for value in values if value is not None]
        if len(set(values)) < 2:
            return next(iter(values), None)
        return None if None in values else round(statistics.fmean(values))


def finished_runs(runs: Iterable[Run]) -> tuple[list[Finished], list[str]]:
    """The runs that may be averaged, and a line for each of the others; UserError for none."""
    finished, unfinished = [], []
    todo = "finish them (fairseq-collab sweep)"
    for run in runs:
        record = run.score() if run.verdict() == "finished" else None
        if record is None:
            unfinished.append(f"{run.name}: {run.state()}")
        else:
            finished.append(Finished(run.folder, record))
    if not finished:
        problem = f"no finished run; {unfinished[0]}" if unfinished else "no runs"
        raise UserError(problem, todo=todo)
    return finished, unfinished


def check_same(runs: Sequence[Finished], fields: Iterable[str], todo: str) -> None:
    """Refuse runs that differ in one of the fields: names two such runs and both values."""
    for field in fields:
        values = [(getattr(run.record, field), run.folder) for run in runs]
        known = [pair for pair in values if pair[0] is not None or field not in MAY_LACK]
        for (one, first), (another, other) in pairwise(known):
            if one != another:
                what = f"{first} and {other} differ in {field}: {one} and {another}"
                raise UserError(what, todo=todo)


def value_of(run: Finished, name: str) -> Any:
    """A field of a run's record, ``perplexity.test`` inside one, or one of :data:`SUMS`; else a
    choice of the sweep."""
    if name in SUMS:
        parts = [getattr(run.record, part) for part in SUMS[name]]
        return None if None in parts else sum(parts)
    value: Any = run.record
    for part in name.split("."):
        inside = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        if part not in inside:
            return run.overridden(name)
        value = inside[part]
    return value


def x_of(run: Finished, name: str) -> X | None:
    """A field of ``score.json`` or a choice of the sweep, a number where it looks like one."""
    if name == NO_X:
        return ""
    value = value_of(run, name)
    if isinstance(value, (list, dict)):
        raise UserError(f"{name!r} is no single value", where="--x", todo="give another")
    if not isinstance(value, str):
        return value
    for number in (int, float):
        try:
            return number(value)
        except ValueError:
            continue
    return value


def rows(runs: Sequence[Finished], x: str) -> tuple[list[Row], list[Finished]]:
    """One row a model, the grid of methods and values of ``x`` filled up with rows without runs.

    Larger ``x`` first, then the method's name.  Beside them the runs that have no ``x``.
    """
    check_same(runs, SAME_IN_TABLE, todo="make a table of each")
    placed = [run for run in runs if x_of(run, x) is not None]
    if not placed:
        raise UserError(
            f"no run has {x!r}",
            where="--x",
            todo="give a field of score.json or a choice of the sweep, such as key_dim; or "
            f"{NO_X}, for a row a method",
        )
    variant = _variants(placed, x)
    groups = grouped(placed, lambda run: (run.record.method, variant(run), x_of(run, x)))
    models = sorted({(method, text) for method, text, _ in groups}, key=_natural)
    values = sorted({value for _, _, value in groups}, key=_descending)
    found = [
        Row(*model, value, seeds_of_one(groups.get((*model, value), [])))
        for value in values
        for model in models
    ]
    return found, [run for run in runs if x_of(run, x) is None]


def _variants(placed: Sequence[Finished], x: str) -> Callable[[Finished], str]:
    """Names a run by the choices in which runs of one method and ``x`` differ, seeds apart."""
    keys: set[str] = set()
    for group in grouped(placed, lambda run: (run.record.method, x_of(run, x))).values():
        choices = [run.record.overrides.items() for run in group]
        differing = set().union(*choices).difference(set(choices[0]).intersection(*choices))
        keys |= {key for key, _ in differing} - {"common.seed"}

    def variant(run: Finished) -> str:
        chosen = run.record.overrides
        parts = (f"{key.rsplit('.', 1)[-1]}={chosen[key]}" for key in sorted(keys & chosen.keys()))
        return ", ".join(parts)

    return variant


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """What has the same key together, in the order of ``items``."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def seeds_of_one(runs: Sequence[Finished]) -> tuple[Finished, ...]:
    """The runs of one model by seed; UserError if they are of several, or of one seed twice.

    Where layers of a site differ in their heads, a training has chosen them, and each seed may have
    its own: they are one model's still.
    """
    shapes = [run.record.heads_by_site or {} for run in runs]
    sites = chain.from_iterable(shape.values() for shape in shapes)
    chosen = all(shapes) and any(len(set(layers)) > 1 for layers in sites)
    same = SAME_IN_ROW[:1] if chosen and shapes.count(shapes[0]) < len(runs) else SAME_IN_ROW
    check_same(runs, same, todo="they are not seeds of one model: make a table of each")
    ordered = sorted(runs, key=lambda run: run.record.seed)
    for run, twin in pairwise(ordered):
        if run.record.seed == twin.record.seed:
            raise UserError(
                f"{run.folder} and {twin.folder} are the same model with the same seed "
                f"({run.record.seed})",
                todo="leave one out, or give one another method",
            )
    return tuple(ordered)


def _natural(model: tuple[str, str]) -> list[list[str | float]]:
    """Orders numbers in texts by size: heads=2 before heads=16, 0.003 before 0.01."""
    return [
        [float(part) if part[:1].isdecimal() else part for part in _NUMBER.split(text)]
        for text in model
    ]


def _descending(value: X) -> tuple[bool, float, str]:
    return (True, 0, value) if isinstance(value, str) else (False, -value, "")


def warnings(runs: Sequence[Finished], budgets: bool = True) -> list[str]:
    """What makes a comparison unfair, or its figures doubtful, without forbidding the table.

    Args:
        budgets: whether runs are compared that may have been trained for longer than others
    """
    found = []
    updates = {run.record.train_updates: run.name for run in runs}
    few, many = min(updates), max(updates)
    if budgets and many > few * (1 + BUDGET_TOLERANCE):
        found.append(
            f"training budgets differ by more than {BUDGET_TOLERANCE:.0%}: "
            f"{few:,} updates ({updates[few]}) to {many:,} ({updates[many]})"
        )
    decoding = distinct(runs, lambda record: f"beam {record.beam}, lenpen {record.lenpen}")
    if len(decoding) > 1:
        found.append(f"translated differently: {'; '.join(decoding)}")
    averaged = distinct(runs, lambda record: f"{len(record.averaged)}")
    if len(averaged) > 1:
        found.append(f"different numbers of averaged checkpoints: {', '.join(averaged)}")
    if len(distinct(runs, lambda record: record.hardware)) > 1:
        found.append("training tokens/s come from different hardware and do not compare")
    if runs[0].record.data_sha256 is None:
        found.append("the data folder has no manifest: that its files were the same is not checked")
    return found


def distinct(runs: Iterable[Finished], value: Callable[[Record], Any]) -> list[str]:
    """The different values of something over runs, sorted."""
    return sorted({str(value(run.record)) for run in runs})
