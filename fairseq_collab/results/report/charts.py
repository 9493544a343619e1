"""The figures of a budget: quality against cost with its Pareto front, and learning curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from fairseq_collab.results.report.words import row_text
from fairseq_collab.results.svg import BAND, FAINT, LINE, LINK, TEXT, inline

Row = Mapping[str, Any]
Box = tuple[float, float, float, float]  # left, low, right, high, in points
COSTS = {
    "parameters": "million parameters",
    "multiply_adds": "million multiply-adds a sentence pair",
}
SIZE = (5.0, 3.9)  # inches: 360 points wide, each about a pixel on a phone
FONT = 11.5
LABEL = FontProperties(size=FONT)
#: Where a label may stand beside its point, in points, the best place first.
PLACES = [
    (x * near, y * near)
    for near in (1, 1.5)
    for x, y in ((0, 7), (0, -7), (8, 0), (-8, 0), (6, 6), (-6, 6), (6, -6), (-6, -6))
]


def against_cost(answer: Mapping[str, Any], identity: str, title: str) -> Markup:
    """BLEU against a cost: two rows by name, the front (with intervals) and controls by number."""
    cost, best = answer["cost"], answer["best"]["bleu"]
    front = [row["number"] for row in answer["front"]]
    rows = {row["number"]: row for row in answer["rows"] if row not in answer["far_below"]}
    at = {number: (row[cost] / 1e6, row["bleu"]["mean"]) for number, row in rows.items()}
    figure, axes = _axes(COSTS[cost], "BLEU")
    axes.axhspan(best["low"], best["high"], color=BAND, zorder=0)
    axes.plot(*zip(*(at[number] for number in front), strict=True), "--", color=LINK, linewidth=1)
    for number, point in at.items():
        bleu, colour, size = rows[number]["bleu"], FAINT, 5.0
        if number in front:
            colour, size = LINK, 7.5
            axes.vlines(point[0], bleu["low"], bleu["high"], color=LINK, linewidth=1, alpha=0.6)
        axes.plot(*point, "o", color=colour, markersize=size)
    axes.set(xmargin=0.1, ymargin=0.1)
    named = [row["number"] for row in (answer["best"], answer["pick"]) if row in rows.values()]
    names = {number: row_text(rows[number]) for number in named}
    named += [number for number in front if number not in named]
    named += [number for number in at if _control(rows[number]) and number not in named]
    names |= {number: str(number) for number in named if number not in names}
    _label(figure, axes, names, at, front)
    return inline(figure, identity, f"BLEU against {cost.replace('_', '-')}: {title}")


def learning_curves(
    lines: Iterable[tuple[Row, Sequence[Sequence[float]]]],
    shown: Sequence[int],
    identity: str,
    title: str,
) -> Markup:
    """Validation losses of runs: of the first row ``shown`` solid, of the second one broken."""
    figure, axes = _axes("training updates", "validation loss, bits a token")
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


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
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


def _label(
    figure: Figure,
    axes: Axes,
    names: Mapping[int, str],
    points: Mapping[int, tuple[float, float]],
    front: Sequence[int],
) -> None:
    """Write the names beside their points, inside the axes, where they cover least."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    scale = figure.dpi / 72
    axes.autoscale_view()  # settles where points are
    at = {number: axes.transData.transform(point) / scale for number, point in points.items()}
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in at.values()]
    taken += [(at[n][0] - 1, at[n][1] - 50, at[n][0] + 1, at[n][1] + 50) for n in front]
    for one, other in pairwise(front):
        steps = np.linspace(at[one], at[other], 40)
        taken += [(x - 1, y - 1, x + 1, y + 1) for x, y in steps]
    box = axes.bbox
    room = (box.x0 / scale, box.y0 / scale, box.x1 / scale, box.y1 / scale)
    for number, name in names.items():
        x, y = at[number]
        width, height, _ = renderer.get_text_width_height_descent(name, LABEL, False)
        found: list[tuple[float, int, Box]] = []
        for place, (aside, up) in enumerate(PLACES):
            left = x + aside - width / scale * (1 - _sign(aside)) / 2
            low = y + up - height / scale * (1 - _sign(up)) / 2
            left = max(room[0], min(left, room[2] - width / scale))
            low = max(room[1], min(low, room[3] - height / scale))
            here = (left, low, left + width / scale, low + height / scale)
            covered = sum(_shared(here, other) for other in taken)
            found.append((covered + abs(aside) + abs(up), place, here))
        _, _, best = min(found)
        axes.annotate(
            name, (0, 0), best[:2], xycoords="figure points", textcoords="figure points",
            fontproperties=LABEL, color=TEXT, va="bottom",
        )  # fmt: skip
        taken.append(best)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _shared(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    return max(0.0, width) * max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
