"""The figure of a benchmark: bars of ratios with their spread, a panel a part.

Attention alone has too many cases for bars that anyone would look at; its table has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_collab.results.figure_style import BLUE, GREEN, ORANGE, PURPLE, SKY_BLUE, VERMILION

#: In pairs of like colours: runs of one machine stand beside each other.
COLOURS = (BLUE, SKY_BLUE, VERMILION, ORANGE, GREEN, PURPLE)
TITLES = {
    "generate": "translation",
    "train": "training",
    "grouped": "heads in groups: training with the constraint, translation without the other heads",
}
INCHES_A_BAR, WIDTH = 0.14, 13.0

Run = dict[str, Any]


def draw(runs: Sequence[Run]) -> Figure | None:
    """Bars are medians, whiskers the 5th to 95th percentile; None if nothing was timed.

    A bar for each run and matrix library; the line at 1 is the model compared with.
    """
    parts = {part: _labels(runs, part) for part in TITLES}
    parts = {part: labels for part, labels in parts.items() if labels}
    if not parts:
        return None
    bars = [(n, column) for n, run in enumerate(runs) for column in run["libraries"]]
    heights = [max(len(labels), 2) * len(bars) * INCHES_A_BAR + 0.8 for labels in parts.values()]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.5), layout="constrained")
    panels = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
    for axes, (part, labels) in zip(panels[:, 0], parts.items(), strict=True):
        for number, (place, column) in enumerate(bars):
            _bars(axes, runs[place], part, column, labels, (number, len(bars)), place)
        _style(axes, part, labels)
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=7, loc="outside lower right", ncols=len(bars))
    return figure


def _label(record: dict[str, Any]) -> str:
    against = "" if record["against"] == "transformer" else f" v. {record['against']}"
    return f"{record['preset']}, {record['case']}: {record['model']}{against}"


def _labels(runs: Sequence[Run], part: str) -> list[str]:
    found = (_label(r) for run in runs for r in run["records"] if r["part"] == part)
    return list(dict.fromkeys(found))


def _bars(
    axes: Axes,
    run: Run,
    part: str,
    column: str,
    labels: list[str],
    place: tuple[int, int],
    run_number: int,
) -> None:
    """One run and library: a bar at each label that it has."""
    number, total = place
    records = [r for r in run["records"] if r["part"] == part and r["column"] == column]
    height = 0.8 / total
    ratios = [r["ratio"] for r in records]
    axes.barh(
        [labels.index(_label(r)) + (number - (total - 1) / 2) * height for r in records],
        ratios,
        height,
        xerr=[
            [r["ratio"] - r["low"] for r in records],
            [r["high"] - r["ratio"] for r in records],
        ],
        color=COLOURS[number % len(COLOURS)],
        error_kw={"elinewidth": 0.7},
        label=f"run {run_number + 1}, {run['libraries'][column]}",
    )


def _style(axes: Axes, part: str, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set_xlabel("times as fast (median; whiskers: 5th to 95th percentile)", fontsize=8)
    axes.set_title(TITLES[part], fontsize=10, loc="right")  # it may be wider than the axes
