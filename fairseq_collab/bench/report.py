"""Runs of a benchmark as Markdown and as a figure: ratios with their spread, a panel a part.

Attention alone has too many cases for a figure that anyone would look at; its table has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from collab_common.errors import UserError
from collab_common.files import read_versioned
from fairseq_collab.bench.models import STOCK
from fairseq_collab.bench.run import VERSION
from fairseq_collab.bench.settings import Record
from fairseq_collab.results.figure_style import COLOURS, SHAPES
from fairseq_collab.results.pages import TEMPLATES, environment

TITLES = {
    "generate": "translation",
    "train": "training",
    "engines": "translation of the same models by several engines",
    "grouped": "heads in groups: updates with the constraint, translation without the other heads",
}
INCHES_A_ROW, WIDTH = 0.24, 11.0


def read(path: Path) -> dict[str, Any]:
    """A JSON file of ``fairseq-collab bench``; raises UserError if it is none."""
    todo = "give what fairseq-collab bench --out wrote"
    found = read_versioned(path, VERSION, "results of a benchmark", todo)
    if "records" not in found:
        raise UserError("it has no records", path, todo)
    return found


def markdown(template: str, **values: Any) -> str:
    """What a packaged template makes of runs, or of decoding speeds."""
    return environment(TEMPLATES, TEMPLATES).get_template(template).render(**values)


def draw(runs: Sequence[dict[str, Any]]) -> Figure | None:
    """Marks are medians, whiskers the 5th to 95th percentile; None if nothing was timed.

    A colour for each matrix library or engine, a mark for each run; the line at 1 is the model
    compared with.
    """
    # fairseq's model itself is the line at 1
    compared = [[r for r in run["records"] if r["model"] != r.get("against")] for run in runs]
    runs = [{**run, "records": found} for run, found in zip(runs, compared, strict=True)]
    records = [record for run in runs for record in run["records"]]
    labels = {p: list(dict.fromkeys(_label(r) for r in records if r["part"] == p)) for p in TITLES}
    labels = {part: rows for part, rows in labels.items() if rows}
    if not labels:
        return None
    heights = [max(len(rows), 2) * INCHES_A_ROW + 0.8 for rows in labels.values()]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
    panels = figure.subplots(len(labels), 1, squeeze=False, height_ratios=heights)[:, 0]
    legend: dict[str, Any] = {}
    for axes, (part, rows) in zip(panels, labels.items(), strict=True):
        series = [*_series(runs, part)]
        for number, (name, style, of_series) in enumerate(series):
            place = (number - (len(series) - 1) / 2) * 0.6 / len(series)
            legend[name] = _marks(axes, of_series, rows, place, **style)
        axes.set_yticks(range(len(rows)), rows, fontsize=7)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.grid(axis="y", linewidth=0.3)
        axes.set_xlabel("times as fast (median; whiskers: 5th to 95th percentile)", fontsize=8)
        axes.set_title(TITLES[part], fontsize=10, loc="right")  # it may be wider than the axes
    handles, names = legend.values(), legend.keys()
    figure.legend(handles, names, fontsize=7, loc="outside lower right", ncols=len(names))
    return figure


def _series(
    runs: Sequence[dict[str, Any]], part: str
) -> Iterator[tuple[str, dict[str, Any], list[Record]]]:
    """What a panel's marks stand for, their colours and shapes, and the records of each."""
    for number, run in enumerate(runs):
        found = [record for record in run["records"] if record["part"] == part]
        for colour, kind in enumerate(dict.fromkeys(map(_kind, found))):
            library = run["libraries"].get(kind)
            name = f"run {number + 1}, {library}" if library else kind
            style = {"color": COLOURS[colour], "marker": SHAPES[number if library else colour]}
            yield name, style, [record for record in found if _kind(record) == kind]


def _kind(record: Record) -> str:
    return str(record.get("engine", record["column"]))


def _label(record: Record) -> str:
    against = "" if record["against"] == STOCK else f" v. {record['against']}"
    model = record.get("pair", record["model"])  # one row for all engines with a model
    return f"{record['preset']}, {record['case']}: {model}{against}"


def _marks(
    axes: Axes, records: list[Record], rows: list[str], place: float, **style: Any
) -> ErrorbarContainer:
    ratios = [r["ratio"] for r in records]
    ends = [[r["ratio"] - r["low"] for r in records], [r["high"] - r["ratio"] for r in records]]
    heights = [rows.index(_label(r)) + place for r in records]
    style |= {"linestyle": "none", "elinewidth": 0.8, "markersize": 4}
    return axes.errorbar(ratios, heights, xerr=ends, **style)
