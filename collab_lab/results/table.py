"""A table of runs: a row per model with means over seeds, and its differences from a baseline.

``x`` is what differs between the rows of a method (key width, head size, ...): a field of
``score.json`` or an option of the sweep.  With :data:`NO_X` the table has a row per method and
setting.  By default ``x`` is the key width, if all methods have one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from collab_common.errors import UserError
from collab_lab.metrics.significance import Gain, gain_of, holm
from collab_lab.results import collect
from collab_lab.results.collect import SEED, check_same, check_seeds, column, numeric
from collab_lab.runs.record import doubts

NO_X = "none"
#: What a table varies by default.
X = "key_dim"
NO_TEST = "none"
#: Baselines of the tests unless one is given: separate keys.
BASELINES = ("concatenated", "fork_concatenated")
#: The field that each task is measured by.
MEASURED = {"translation": "bleu", "language_modeling": "perplexity"}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


class Row(NamedTuple):
    """The seeds of one model.

    Attributes:
        x: value of ``x``; "" with :data:`NO_X`.
        label: the method, and the options that distinguish the row from others of the method.
    """

    x: Any
    label: str
    runs: pd.DataFrame

    @property
    def method(self) -> str:
        return str(self.runs["method"].iloc[0])

    @property
    def choices(self) -> str:
        """The options in the label, as text."""
        return self.label.removeprefix(self.method)

    def values(self, name: str) -> list[Any]:
        """The values of a column, one per seed; empty if a seed has none."""
        values = column(self.runs, name)
        return [] if values is None or values.isna().any() else values.to_list()


class Difference(NamedTuple):
    """The differences of a row from the baseline: by seed, their mean, and p corrected by Holm."""

    gains: dict[int, float]
    gain: Gain | None  # None without common seeds
    p_holm: float | None


@dataclass(frozen=True)
class Table:
    """The rows of a table, and the baseline that they are tested against.

    Attributes:
        score: column to test and draw; by default the measure of the task.
        baseline: a method or a row's label; None: no tests.
        left_out: one line of text for each run that is not in any row.
    """

    frame: pd.DataFrame
    x: str
    score: str
    baseline: str | None
    rows: list[Row]
    left_out: list[str]
    command: str
    columns: tuple[str, ...]

    def warnings(self) -> list[str]:
        """Warnings about whatever makes a comparison unfair or its numbers doubtful."""
        parameters = [(row, row.values("parameters")) for row in self.rows]
        return (
            collect.warnings(self.frame)
            + collect.timed_otherwise(self.frame, {*self.columns, self.score})
            + [
                f"models of {row.label} have {min(found):,} to {max(found):,} parameters"
                for row, found in parameters
                if len(set(found)) > 1
            ]
            + [
                f"runs of {row.label} differ in {name} ({', '.join(values)}): are they of two "
                "sweeps, and no seeds of one model?"
                for row in self.rows
                for name, values in collect.trained_otherwise(row.runs).items()
            ]
            + [
                f"seeds of {row.label} have one validation loss: is it one model, scored twice?"
                for row in self.rows
                if len({*(found := row.values("valid_nats"))}) < len(found)
            ]
            + [
                f"{row.label}, seed {run['seed']}: {doubt}"
                for row in self.rows
                for _, run in row.runs.iterrows()
                for doubt in doubts(run)
            ]
        )


def read_table(
    folders: Sequence[Path],
    x: str | None = None,
    against: str | None = None,
    columns: tuple[str, ...] = (),
    score: str | None = None,
) -> Table:
    """Make a table of the runs in some folders; the arguments are the command's options.

    Raises:
        UserError: the runs cannot be compared, or lack ``x``, the score or the baseline.
    """
    frame, unfinished = collect.read_runs(folders)
    options = {"--x": x, "--against": against, "--columns": ",".join(columns), "--score": score}
    chosen = [word for name, value in options.items() if value for word in (name, value)]
    command = shlex.join(["fairseq-collab", "table", *sorted(map(str, folders)), *chosen])
    check_same(frame, collect.SAME_IN_TABLE, todo="make a table of each")
    score = measure(frame) if score is None else score
    x = default_x(frame) if x is None else x
    placed = frame if x == NO_X else frame[_column(frame, x, "--x").notna()]
    scores = numeric(_column(placed, score, "--score"))
    if not pd.api.types.is_numeric_dtype(scores) or scores.isna().any():
        todo = "give a number of score.json, such as valid_loss"
        raise UserError(f"not every run has a number {score!r}", "--score", todo)
    # Facts of the user and options of the sweep are text; as a score they do not name rows.
    named = [key for key in placed if key.startswith("overrides.") and key.endswith(f".{score}")]
    placed = placed.drop(columns=named).assign(**{score: scores})
    rows = rows_of(placed, x)
    without = [f"{Path(run).name}: has no {x}" for run in frame.drop(placed.index)["folder"]]
    baseline = choose_baseline(rows, against)
    return Table(placed, x, score, baseline, rows, [*unfinished, *without], command, columns)


def measure(frame: pd.DataFrame) -> str:
    """The field with the measure of the runs' task."""
    name = MEASURED[frame["task"].iloc[0]]
    return name if name in frame else f"{name}.{frame['subset'].iloc[0]}"


def default_x(frame: pd.DataFrame) -> str:
    """The key width, unless a kind of heads has none, or has a single one of several widths.

    Such a kind would share no row with the others at most widths.
    """
    widths = column(frame, X)
    if widths is None or widths.isna().any():
        return NO_X
    fewest = widths.groupby(frame["method"]).nunique().min()
    return X if fewest > 1 or widths.nunique() == 1 else NO_X


def rows_of(frame: pd.DataFrame, x: str) -> list[Row]:
    """A row per model: larger ``x`` first, then by label."""
    x_values = pd.Series("", frame.index) if x == NO_X else numeric(_column(frame, x, "--x"))
    labels = _labels(frame, x_values)
    groups = dict(iter(frame.groupby([x_values, labels], sort=False)))
    for group in groups.values():
        check_seeds(group)
    values = sorted(set(x_values), reverse=pd.api.types.is_numeric_dtype(x_values))
    return [
        Row(value, label, groups[value, label])
        for value in values
        for label in sorted(set(labels), key=_natural)
        if (value, label) in groups
    ]


def _column(frame: pd.DataFrame, name: str, option: str) -> pd.Series:
    values = column(frame, name)
    if values is None:
        todo = "give a field of score.json or a choice of the sweep, such as key_dim"
        raise UserError(f"no run has {name!r}", where=option, todo=todo)
    if values.map(lambda value: isinstance(value, list)).any():
        raise UserError(f"{name!r} is not a single value", where=option, todo="give another field")
    return values


def _labels(frame: pd.DataFrame, x_values: pd.Series) -> pd.Series:
    """Methods, with the choices in which runs of one method and ``x`` differ, seeds apart."""
    choices = [choice for choice in frame if choice.startswith("overrides.") and choice != SEED]
    by_row = frame.groupby([frame["method"], x_values], sort=False)
    differing = [choice for choice in choices if (by_row[choice].nunique(dropna=False) > 1).any()]
    labels = frame["method"]
    for name in sorted(differing):
        text = f", {name.rpartition('.')[2]}=" + frame[name].astype(str)
        labels = labels + text.where(frame[name].notna(), "")
    return labels


def _natural(label: str) -> list[str | float]:
    """Sort numbers in texts by size: heads=2 before heads=16."""
    parts = _NUMBER.split(label)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]


def choose_baseline(rows: Sequence[Row], baseline: str | None) -> str | None:
    """The method or label to test against; by default separate keys, if the table has them."""
    names = [name for row in rows for name in (row.method, row.label)]
    if baseline is None:
        return next((name for name in BASELINES if name in names), None)
    if baseline == NO_TEST:
        return None
    if baseline not in names:
        methods = ", ".join(dict.fromkeys(row.method for row in rows))
        todo = f"give one of {methods}, a row's name in the table, or {NO_TEST}"
        raise UserError(f"no method and no row is called {baseline!r}", "--against", todo)
    return baseline


def differences(table: Table) -> list[Difference | None]:
    """Test each row against the baseline's row at the same ``x``; None for rows without a test."""
    name = table.baseline
    bases = [row for row in table.rows if name in (row.method, row.label)]
    by_seed = [
        paired(row, _base(row, bases), table.score)
        if name and name not in (row.method, row.label)
        else None
        for row in table.rows
    ]
    tested = [gain_of([*one.values()]) if one else None for one in by_seed]
    corrected = holm([gain and gain.p for gain in tested])
    return [
        None if seeds is None else Difference(seeds, gain, p)
        for seeds, gain, p in zip(by_seed, tested, corrected, strict=True)
    ]


def _base(row: Row, bases: Sequence[Row]) -> Row | None:
    """The baseline's only row at the row's ``x``, or the one with the row's choices."""
    at_x = [base for base in bases if base.x == row.x]
    equal = [base for base in at_x if base.choices == row.choices]
    return next(iter(at_x if len(at_x) == 1 else equal), None)


def paired(row: Row, base: Row | None, score: str) -> dict[int, float]:
    """The gains of a row over the baseline, by seed."""
    sides = [
        {} if side is None else dict(zip(side.runs["seed"], side.values(score), strict=True))
        for side in (row, base)
    ]
    return {seed: sides[0][seed] - sides[1][seed] for seed in sides[0] if seed in sides[1]}
