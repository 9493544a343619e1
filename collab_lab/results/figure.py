"""Figures of results: a line per method, with a mark per seed and the name at the line's end.

Standard heads are a horizontal line. Each line has its name at its end; there is no legend.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from collab_lab.results.render import named
from collab_lab.results.table import NO_X, Table, standard_row
from collab_lab.results.table_text import heading, noun, title

#: Okabe and Ito's colours, distinct for readers with any colour vision.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY_BLUE, BLACK = "#E69F00", "#56B4E9", "#000000"
#: One after the other for the curves of a figure, each with its own mark.
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK)
SHAPES = ("o", "s", "^", "D", "v", "P", "X")
#: Left out of files, so that they depend on the drawing alone: the software's name, the date.
_METADATA = {"png": ["Software"], "svg": ["Creator", "Date", "Format", "Type"]}
INCHES = (7.0, 4.2)
LINE = 12  # points between two names at the right
GREY = "#666666"
#: White behind a name, which may cross a line.
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}


@dataclass
class Series:
    """Points of one name: values of every seed, by x."""

    name: str
    points: dict[Any, Sequence[float]] = field(default_factory=dict)


def of_table(table: Table) -> dict[str, bytes]:
    """``figure.png`` and ``figure.svg`` of a table: its score against ``x``, or parameters."""
    standard = standard_row(table.rows)
    levels = {"standard heads": standard.values(table.score)} if standard else {}
    x = noun(table) or "million parameters"
    found: dict[str, Series] = {}
    for row in (row for row in table.rows if len(row.runs)):
        where = fmean(row.values("parameters")) / 1e6 if table.x == NO_X else row.x
        one = found.setdefault(row.label, Series(named(row.label)))
        one.points[where] = row.values(table.score)
    what = heading(table.score)
    page = draw([*found.values()], x, what, title(table), levels, log=table.x != NO_X)
    return {f"figure.{form}": saved(page, form) for form in ("png", "svg")}


def draw(
    series: Sequence[Series],
    x: str,
    y: str,
    message: str,
    levels: Mapping[str, Sequence[float]] | None = None,
    log: bool = True,
    names: Mapping[Any, str] | None = None,
    scatter: bool = False,
) -> Figure:
    """The figure.

    Args:
        levels: values over seeds that are drawn as a line across, by name: standard heads
        log: draw a numeric x on a scale of octaves
        names: what the axis says at each x, where it is not the number
        scatter: draw marks alone, on logarithmic axes with the line y = x, and a legend
    """
    if scatter:
        return _scatter(series, x, y, message)
    with rc_context({"font.size": 10}):
        page = Figure(figsize=INCHES, layout="constrained")
        axes = page.add_subplot()
        values = list(dict.fromkeys(at for one in series for at in one.points))
        numeric = all(isinstance(at, (int, float)) and at > 0 for at in values)
        places = {
            at: (math.log2(at) if log else at) if numeric else place
            for place, at in enumerate(values)
        }
        ends = []
        for number, one in enumerate(series):
            colour, shape = COLOURS[number % len(COLOURS)], SHAPES[number % len(SHAPES)]
            points = sorted((places[at], scores) for at, scores in one.points.items())
            at, means = [x for x, _ in points], [fmean(scores) for _, scores in points]
            marks = f"{shape}-" if numeric else shape
            axes.plot(at, means, marks, color=colour, markersize=6, zorder=3)
            for place, scores in points:
                if len(scores) > 1:
                    axes.plot([place] * len(scores), scores, "_", color=colour, markersize=7)
            ends.append((at[-1], means[-1], one.name, colour))
        for name, scores in (levels or {}).items():
            axes.axhline(fmean(scores), color=BLACK, linestyle="--", linewidth=1)
            axes.annotate(
                name, (0, fmean(scores)), (3, 3), xycoords=("axes fraction", "data"),
                textcoords="offset points", fontsize=9,
            )  # fmt: skip
        if not numeric or log:
            axes.set_xticks([*places.values()], [str((names or {}).get(at, at)) for at in places])
            axes.minorticks_off()
        _label(axes, ends)
        seeds = any(len(scores) > 1 for one in series for scores in one.points.values())
        style(axes, x, y, message + "\nmarks: means; dashes: seeds" * seeds)
        return page


def _scatter(series: Sequence[Series], x: str, y: str, message: str) -> Figure:
    """Points of each series, in octaves on both axes."""
    with rc_context({"font.size": 10}):
        page = Figure(figsize=INCHES, layout="constrained")
        axes = page.add_subplot(xscale="log", yscale="log")
        for one, colour, shape in zip(series, COLOURS, SHAPES, strict=False):
            pairs = [(at, score) for at, scores in one.points.items() for score in scores]
            xs, ys = zip(*pairs, strict=True)
            axes.plot(xs, ys, shape, color=colour, markersize=4, alpha=0.6, label=one.name)
        axes.axline((1e-3, 1e-3), (1, 1), color=BLACK, linestyle="--", linewidth=1)
        axes.legend(frameon=False, fontsize=9)
        style(axes, x, y, message)
        return page


def _label(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Each name to the right of the last point of its line, moved up where names would overlap."""
    axes.autoscale_view()
    low, high = axes.get_ylim()
    points = INCHES[1] * 72 * 0.75 / (high - low)  # per unit of y, of the axes' part of the page
    lowest = -math.inf
    for at, y, name, colour in sorted(ends, key=lambda end: end[1]):
        height = max((y - low) * points, lowest)
        lowest = height + LINE
        axes.annotate(
            name, (at, y), (8, height - (y - low) * points), textcoords="offset points",
            color=colour, fontsize=9, va="center", bbox=BEHIND,
        )  # fmt: skip


def style(axes: Axes, x: str, y: str, message: str) -> None:
    """What all figures have: a title that says the message, names of axes, few lines."""
    axes.set_title(message, fontsize=10, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.06, y=0.1)


def saved(figure: Figure, form: str, dots_per_inch: int = 200) -> bytes:
    """The file of a figure: "png" or "svg"."""
    content = io.BytesIO()
    metadata = dict.fromkeys(_METADATA[form])
    # The salt makes the identifiers in an SVG, random by default, reproducible.
    with rc_context({"svg.hashsalt": "fairseq-collab", "svg.fonttype": "none"}):
        figure.savefig(content, format=form, dpi=dots_per_inch, metadata=metadata)
    return content.getvalue()
