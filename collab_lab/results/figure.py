"""Figures of results: one colour and mark per method, the same in all figures.

Large marks are means, small marks single seeds; the name of a line is at its right end.  Figures
are transparent, with grey text and colours that are visible on white and on black.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle
from statistics import fmean
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from collab_lab.results.table import NO_X, Table
from collab_lab.results.table_text import heading, noun, title

#: Values over seeds, by x.
Points = Mapping[Any, Sequence[float]]
#: Colour and mark of each method, by words of its name; the first that the name contains counts.
STYLES = {
    "heads removed": ("#8d5a3b", "P"),
    "own": ("#0072c4", "o"),
    "diagonal": ("#c44fa8", "D"),
    "separate": ("#c98500", "s"),
    "latent": ("#cf4a00", "^"),
    "grouped query": ("#009e73", "v"),
    "standard heads": ("#717b84", "X"),
    "shared": ("#3896dd", "p"),  # full mixing
}
#: Line of a size or variant, by the last words of a name.
LINES = {
    "trained narrow": "--",
    "d = 256": "--",
    "widths alone": "--",
}
GREY = STYLES["standard heads"][0]
#: Decorator of all that draws.  The salt makes the identifiers in an SVG reproducible.
styled = rc_context({
    "font.size": 10, "axes.titlesize": 10, "figure.titlesize": 11, "figure.labelsize": 10,
    "text.color": GREY, "axes.labelcolor": GREY, "axes.edgecolor": GREY, "xtick.color": GREY,
    "ytick.color": GREY, "figure.facecolor": "none", "axes.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "axes.axisbelow": True, "grid.color": GREY, "grid.alpha": 0.25, "legend.frameon": False,
    "legend.fontsize": 9, "legend.columnspacing": 1.2, "lines.markeredgewidth": 0,
    "svg.fonttype": "path", "svg.hashsalt": "fairseq-collab", "pdf.fonttype": 42,
})  # fmt: skip
#: Left out of files, so that they depend on the drawing alone: the software's name, the date.
_METADATA = {
    "svg": ["Creator", "Date", "Format", "Type"],
    "pdf": ["Creator", "Producer", "CreationDate"],
}
INCHES = (8.6, 4.4)  # 826 pixels wide in a browser
LINE = 14  # points between two names at the right


def of_table(table: Table) -> Figure:
    """The figure of a table: its score against ``x``, or against the number of parameters."""
    series: dict[str, dict[Any, list[float]]] = {}
    for row in table.rows:
        at = fmean(row.values("parameters")) / 1e6 if table.x == NO_X else row.x
        series.setdefault(row.label, {})[at] = row.values(table.score)
    x, y = noun(table) or "million parameters", heading(table, table.score)
    return draw({"": series}, x, y, title(table), log=table.x != NO_X)


@styled
def draw(
    panels: Mapping[str, Mapping[str, Points]],
    x: str,
    y: str,
    title: str,
    zero: str = "",
    *,
    log: bool = True,
    log_y: bool = False,
    names: Mapping[Any, str] | None = None,
) -> Figure:
    """Draw a figure.

    Args:
        panels: the series of each panel, by title and by name.  A name is a method of ``STYLES``,
            optionally with a variant of ``LINES``.  Several panels stand in a row and have a legend
            instead of names at the lines.
        title: title of the figure.
        zero: baseline of the differences, drawn as a line at 0.
        log: whether to draw a numeric x that is above 0 on a scale of octaves.
        names: labels of the x axis, if they are not the numbers.
    """
    values = dict.fromkeys(at for of in panels.values() for one in of.values() for at in one)
    numeric = all(isinstance(at, (int, float)) for at in values)
    octaves = numeric and log and min(values) > 0
    places = {at: at if numeric else place for place, at in enumerate(values)}
    page = Figure(figsize=INCHES, layout="constrained")
    page.suptitle(title, x=0.01, ha="left")
    [row] = page.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)
    every = dict.fromkeys(name for of in panels.values() for name in of)
    looks = dict(zip(every, styles(every), strict=True))  # one a name, in all panels
    for axes, (name, of) in zip(row, panels.items(), strict=True):
        axes.set_title(name)
        ends = _plot(axes, of, looks, places, joined=numeric)
        axes.grid(axis="y")
        axes.margins(x=0.04, y=0.08)
        if octaves:
            axes.set_xscale("log")
        if log:
            axes.set_xticks([*places.values()], [str((names or {}).get(at, at)) for at in values])
            axes.minorticks_off()
        axes.set_yscale("log" if log_y else "linear")
        if zero:
            axes.yaxis.set_major_formatter("{x:+g}")
            axes.axhline(0, color=GREY, linestyle="--", linewidth=1.2)
            ends.append((max(end[0] for end in ends), 0, zero, GREY))
        if len(panels) == 1:
            _label(axes, ends)
        axes.set(xlabel=x, ylabel=y + f"\ndifference from {zero}" * bool(zero))
        axes.label_outer()
    if len(panels) > 1:
        shown = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in row]
        legend = {label: handle for pairs in shown for handle, label in pairs}
        page.legend([*legend.values()], [*legend], loc="outside lower center", ncols=4)
    return page


#: Colour, mark and line.
Look = tuple[str, str, str]


def styles(names: Collection[str]) -> Iterator[Look]:
    """The colour, mark and line of each name; unknown methods get the remaining ones in order."""
    known = [next((STYLES[key] for key in STYLES if key in name), None) for name in names]
    spare = cycle(one for one in dict.fromkeys(STYLES.values()) if one not in known)
    for name, style in zip(names, known, strict=True):
        yield *(style or next(spare)), LINES.get(name.rpartition(", ")[2], "-")


End = tuple[float, float, str, str]


def _plot(
    axes: Axes, series: Mapping[str, Points], looks: Mapping[str, Look],
    places: Mapping[Any, float], joined: bool,
) -> list[End]:  # fmt: skip
    """Draw the series; where each line ends, its name and colour."""
    ends = []
    for name, of in series.items():
        colour, mark, line = looks[name]
        points = sorted((places[at], [*scores]) for at, scores in of.items())
        at, means = [x for x, _ in points], [fmean(scores) for _, scores in points]
        seeds = [(x, score) for x, scores in points for score in scores]
        axes.plot(*zip(*seeds, strict=True), mark, color=colour, markersize=4, alpha=0.5)
        line, size = (line, 7) if joined else ("", 5)
        axes.plot(at, means, color=colour, marker=mark, ls=line, markersize=size, label=name)
        ends.append((at[-1], means[-1], name, colour))
    return ends


def _label(axes: Axes, ends: list[End]) -> None:
    """Write each name at the right, moved up or down where names would overlap."""
    axes.autoscale_view()
    to_axes = axes.transData - axes.transAxes
    ends = sorted(ends, key=lambda end: end[1])
    gap = LINE / (INCHES[1] * 72 * 0.78)
    heights = [to_axes.transform(end[:2])[1] - i * gap for i, end in enumerate(ends)]
    for i, (x, y, name, colour) in enumerate(ends):
        # The least moves that keep the names apart are an isotonic regression.
        height = isotonic_regression(heights).x[i] + i * gap
        line = {"arrowstyle": "-", "linestyle": ":", "color": colour, "relpos": (0, 0.5)}
        axes.annotate(
            name, (x, y), (1.03, height), textcoords="axes fraction", color=colour, va="center",
            arrowprops=line | {"shrinkA": 0, "shrinkB": 5},
        )  # fmt: skip


@styled
def saved(figure: Figure, form: str = "svg") -> bytes:
    """The content of a figure's file, in the format "svg" or "pdf"."""
    content = io.BytesIO()
    figure.savefig(content, format=form, metadata=dict.fromkeys(_METADATA[form]))
    return content.getvalue()
