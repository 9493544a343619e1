"""The figures of a budget: quality against cost with its Pareto front, and learning curves.

They are drawn with matplotlib and stand inside the page: text stays text, colours are those of its
style sheet, light or dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_collab.results.report.words import row_text

Row = Mapping[str, Any]
Point = tuple[float, float]
COSTS = {
    "parameters": "million parameters",
    "multiply_adds": "million multiply-adds a sentence pair",
}
SIZE = (5.0, 3.9)  # inches: 360 points wide, each about a pixel on a phone
FONT = 11.5
#: Colours to draw in; the page shows the variables of ``style.css`` in their place.
TEXT, FAINT, LINE, BAND, LINK = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {TEXT: "text", FAINT: "faint", LINE: "line", BAND: "band", LINK: "link"}
_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)  # of the whole page
_NAME = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_FONTS = re.compile(r"""'DejaVu Sans'[^;"]*""")


def against_cost(answer: Mapping[str, Any], identity: str, title: str) -> Markup:
    """The figure of an answer: BLEU against what models cost."""
    figure, axes = axes_of(COSTS[answer["cost"]], "BLEU")
    draw_answer(axes, answer)
    return inline(figure, identity, f"BLEU against {answer['cost'].replace('_', '-')}: {title}")


def draw_answer(axes: Axes, answer: Mapping[str, Any]) -> None:
    """BLEU against a cost: the front (with intervals) and controls by number, two rows by name."""
    cost, best, front = answer["cost"], answer["best"]["bleu"], answer["front"]
    rows = [row for row in answer["rows"] if row not in answer["far_below"]]
    at = {row["number"]: (row[cost] / 1e6, row["bleu"]["mean"]) for row in rows}
    axes.axhspan(best["low"], best["high"], color=BAND, zorder=0)
    line = [at[row["number"]] for row in front]
    axes.plot(*zip(*line, strict=True), "--", color=LINK, linewidth=1)
    for row in rows:
        (x, y), bleu, on_front = at[row["number"]], row["bleu"], row in front
        if on_front:
            axes.vlines(x, bleu["low"], bleu["high"], color=LINK, linewidth=1, alpha=0.6)
        colour, size = (LINK, 7.5) if on_front else (FAINT, 5.0)
        label = row_text(row) if row in (answer["best"], answer["pick"]) else None
        axes.plot(x, y, "o", color=colour, markersize=size, label=label)
        if on_front or label or _control(row):
            # Nothing is both cheaper and better than the front: there is room above, to the left.
            above = on_front and not _close_behind((x, y), line)
            axes.annotate(
                str(row["number"]), (x, y), (-4, 4) if above else (4, -4),
                textcoords="offset points", ha="right" if above else "left",
                va="bottom" if above else "top", fontsize=FONT, color=TEXT,
            )  # fmt: skip
    axes.set(xmargin=0.1, ymargin=0.1)
    axes.legend(frameon=False, fontsize=FONT, labelcolor=TEXT, handlelength=1)


def learning_curves(
    lines: Iterable[tuple[Row, Sequence[Sequence[float]]]],
    shown: Sequence[int],
    identity: str,
    title: str,
) -> Markup:
    """Validation losses of runs: of the first row ``shown`` solid, of the second one broken."""
    figure, axes = axes_of("training updates", "validation loss, bits a token")
    for row, points in lines:
        front = row["number"] in shown
        axes.plot(
            *zip(*points, strict=True),
            "--" if row["number"] in shown[1:] else "-",
            color=LINK if front else LINE,
            linewidth=1.6 if front else 1,
            zorder=3 if front else 2,
        )
    return inline(figure, identity, f"Validation losses: {title}")


def axes_of(x: str, y: str) -> tuple[Figure, Axes]:
    """An empty figure, and its axes with their names."""
    figure = Figure(figsize=SIZE)
    axes = figure.add_axes((0.1, 0.15, 0.86, 0.77))
    axes.set_xlabel(x, color=TEXT, fontsize=FONT)
    axes.set_title(y, color=TEXT, fontsize=FONT, loc="left", x=-0.1)
    axes.tick_params(color=LINE, labelcolor=TEXT, labelsize=FONT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
    axes.grid(axis="y", color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.locator_params(nbins=5)
    return figure, axes


def _control(row: Row) -> bool:
    """Whether the row is usual multi-head attention with all of its heads."""
    return row["method"] in ("concatenated", "all-0") and not row["variant"]


def _close_behind(point: Point, line: Sequence[Point]) -> bool:
    """Whether a point's label would cover that of the one before it: within 10 % of both axes."""
    near_x, near_y = (0.1 * (max(axis) - min(axis)) for axis in zip(*line, strict=True))
    return any(0 < point[0] - x < near_x and abs(point[1] - y) < near_y for x, y in line)


def inline(figure: Figure, identity: str, title: str) -> Markup:
    """The figure as an ``svg`` element.

    Args:
        figure: drawn in the colours of this module
        identity: unique in the page; all names inside the drawing start with it
        title: read out in place of the drawing, whose values belong in a table
    """
    file = StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": identity}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    inside = file.getvalue().partition("<svg")[2].partition(">")[2]
    inside = _FONTS.sub("system-ui, sans-serif", _STYLE.sub("", inside, count=1))
    inside = _NAME.sub(rf"\g<1>{identity}-", inside)
    for colour, variable in _VARIABLES.items():
        inside = inside.replace(colour, f"var(--{variable})")
    width, height = (72 * inches for inches in figure.get_size_inches())
    return Markup(
        f'<svg class="chart" role="img" aria-labelledby="{identity}-title" '
        f'viewBox="0 0 {width:g} {height:g}"><title id="{identity}-title">{escape(title)}</title>'
        f"{inside.strip()}"
    )
