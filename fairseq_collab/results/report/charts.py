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
from matplotlib.transforms import Bbox

Row = Mapping[str, Any]
Point = tuple[float, float]
COSTS = {
    "parameters": "million parameters",
    "multiply_adds": "million multiply-adds a sentence pair",
}
SIZE = (5.0, 3.9)  # inches: 360 points wide, each about a pixel on a phone
FONT, DIGIT = 11.5, 7.5  # points: a line's height, and the width of a digit
MARK = 7.5
#: Where a number stands from its point: how it is aligned, and whether it is above.
PLACES = (("right", True), ("left", False), ("left", True), ("right", False))
#: Colours to draw in; the page shows the variables of ``style.css`` in their place.
TEXT, FAINT, LINE, BAND, LINK = "#010101", "#020202", "#030303", "#040404", "#050505"
PAGE = "#060606"
_VARIABLES = {
    TEXT: "text", FAINT: "faint", LINE: "line", BAND: "band", LINK: "link", PAGE: "page",
}  # fmt: skip
_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)  # of the whole page
_NAME = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_FONTS = re.compile(r"""'DejaVu Sans'[^;"]*""")


def against_cost(answer: Mapping[str, Any], identity: str, title: str) -> Markup:
    """The figure of an answer: BLEU against what models cost."""
    figure, axes = axes_of(COSTS[answer["cost"]], "BLEU")
    draw_answer(axes, answer)
    return inline(figure, identity, f"BLEU against {answer['cost'].replace('_', '-')}: {title}")


def draw_answer(axes: Axes, answer: Mapping[str, Any]) -> None:
    """BLEU against a cost, each row by its number: the front filled and with intervals."""
    cost, best, front = answer["cost"], answer["best"]["bleu"], answer["front"]
    rows = [row for row in answer["rows"] if row not in answer["far_below"]]
    at = {row["number"]: (row[cost] / 1e6, row["bleu"]["mean"]) for row in rows}
    axes.axhspan(best["low"], best["high"], color=BAND, zorder=0)
    line = [at[row["number"]] for row in front]
    axes.plot(*zip(*line, strict=True), "--", color=LINK, linewidth=1)
    for row in rows:
        (x, y), bleu = at[row["number"]], row["bleu"]
        if row in front:
            axes.vlines(x, bleu["low"], bleu["high"], color=LINK, linewidth=1, alpha=0.6)
            axes.plot(x, y, "o", color=LINK, markersize=MARK)
        else:
            axes.plot(x, y, "o", color=FAINT, markerfacecolor=PAGE, markersize=MARK - 1)
    axes.set(xmargin=0.1, ymargin=0.1)
    _number(axes, at, [row["number"] for row in front])


def _number(axes: Axes, at: Mapping[int, Point], front: Sequence[int]) -> None:
    """Each number beside its point, where it covers the fewest points and other numbers.

    Nothing is both cheaper and better than the front: there is room above, to the left.
    """
    axes.autoscale_view()
    marks = axes.transData.transform([*at.values()]) * 72 / axes.figure.dpi
    half, line = MARK / 2, FONT
    taken = [Bbox.from_bounds(x - half, y - half, MARK, MARK) for x, y in marks]
    for number, (x, y) in zip(at, marks, strict=True):
        width = DIGIT * len(str(number))
        boxes = {
            (side, up): Bbox.from_bounds(
                x + (4 if side == "left" else -4 - width), y + (4 if up else -4 - line), width, line
            )
            for side, up in (PLACES if number in front else (PLACES[1], PLACES[0], *PLACES[2:]))
        }
        side, up = min(boxes, key=lambda place: boxes[place].count_overlaps(taken))
        taken.append(boxes[side, up])
        axes.annotate(
            str(number), at[number], (4 if side == "left" else -4, 4 if up else -4),
            textcoords="offset points", ha=side, va="bottom" if up else "top",
            fontsize=FONT, color=TEXT,
        )  # fmt: skip


def learning_curves(
    lines: Iterable[tuple[Row, Sequence[Sequence[float]]]],
    shown: Sequence[int],
    identity: str,
    title: str,
) -> Markup:
    """Validation losses of runs: of the first row ``shown`` solid, of the second one broken."""
    figure, axes = axes_of("training updates", "validation loss, bits per token")
    for row, points in lines:
        front = row["number"] in shown
        axes.plot(
            *zip(*points, strict=True),
            "--" if row["number"] in shown[1:] else "-",
            color=LINK if front else FAINT,
            alpha=1 if front else 0.5,
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
