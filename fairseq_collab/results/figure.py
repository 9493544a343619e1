"""The figure of a table: a score against key dimension, a line a method; or against parameters."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from fairseq_collab.results.figure_style import COLOURS, SHAPES, saved
from fairseq_collab.results.names import METHODS, named
from fairseq_collab.results.rows import Row, X
from fairseq_collab.results.tables import deviation, mean

#: Distance of two methods at the same x, in octaves or categories, and of seeds from their mean as
#: a part of it, so that marks and error bars stay apart.
DODGE, SEED_DODGE = 0.05, 0.4
#: What all methods together may take at one x, as a part of the way to the nearest other x.
ROOM = 0.8
#: Distance of two rows with as many parameters, as a part of the whole axis.
SIDE_BY_SIDE = 0.04
INCHES = (6.4, 4.2)
#: More methods than this have their legend beside the axes, in a page that is wider (inches).
INSIDE, WIDER = 4, 10.0


def draw(
    rows: Sequence[Row],
    noun: str | None,
    title: str,
    score: str = "bleu",
    name: str = "BLEU",
    names: Mapping[str, str] = METHODS,
) -> dict[str, bytes]:
    """``figure.png`` and ``figure.svg``, the same bytes for the same rows.

    Points are means over seeds, error bars their standard deviations, small marks the seeds.

    Args:
        noun: what the rows' ``x`` is; None where they have none, for the score against parameters
        title: a line above the figure; the number of seeds is added
        score, name: the field that is drawn, and what it is called
        names: what the legend calls methods, or whole rows by their labels
    """
    # The salt makes the SVG's identifiers, else random, the same every time.
    with rc_context({"svg.hashsalt": "fairseq-collab", "font.size": 10}):
        page = Figure(figsize=INCHES, layout="constrained")
        axes = page.add_subplot()
        if noun is None:
            by_parameters(axes, rows, score, names)
        else:
            positions = place(rows)
            _methods(axes, rows, positions, score, names)
            axes.set_xticks(list(positions.values()), [str(value) for value in positions])
            axes.set_xlabel(noun)
        _style(axes)
        detail = " (sacreBLEU, detokenised, cased)" if score == "bleu" else ""
        axes.set_ylabel(f"{name}{detail}")
        axes.set_title(f"{title}\n{seeds_text(rows)}", fontsize=10, loc="left")
        return {f"figure.{form}": saved(page, form) for form in ("png", "svg")}


def place(rows: Sequence[Row]) -> dict[X, float]:
    """Where each ``x`` stands: positive numbers on a scale of octaves, all else side by side."""
    values = list(dict.fromkeys(row.x for row in rows))
    octaves: dict[X, float] = {v: math.log2(v) for v in values if not isinstance(v, str) and v > 0}
    if len(octaves) == len(values):
        return octaves
    return {value: float(i) for i, value in enumerate(reversed(values))}


def step(positions: Mapping[X, float], methods: int) -> float:
    """From one method to the next at the same x: all stay nearer to it than to another x."""
    places = sorted(positions.values())
    apart = min((b - a for a, b in itertools.pairwise(places)), default=1.0)
    return min(DODGE, ROOM * apart / methods)


def seeds_text(rows: Sequence[Row]) -> str:
    """How many seeds there are per point, and what marks and bars are."""
    numbers = sorted({len(row.runs) for row in rows if row.runs})
    if numbers == [1]:
        return "one seed per point"
    count = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"mean and standard deviation of {count} seeds; small marks: seeds"


def _methods(
    axes: Any,
    rows: Sequence[Row],
    positions: dict[X, float],
    score: str,
    names: Mapping[str, str],
) -> None:
    labels = list(dict.fromkeys(row.label for row in rows))
    dodge = step(positions, len(labels))
    there = {x: [row.label for row in rows if row.x == x and row.runs] for x in positions}
    for number, label in enumerate(labels):
        # Rows that were not run stay as gaps in the line.
        chosen = sorted(
            (row for row in rows if row.label == label), key=lambda row: positions[row.x]
        )
        at = [positions[row.x] + dodge * _rank(label, there[row.x]) for row in chosen]
        scores = [numbers(row, score) for row in chosen]
        _marks(axes, at, scores, number, named(label, names), dodge * SEED_DODGE)


def _rank(label: str, labels: Sequence[str]) -> float:
    """How far to the right of their middle a label stands among those at the same x."""
    return labels.index(label) - (len(labels) - 1) / 2 if label in labels else 0.0


def numbers(row: Row, score: str) -> list[float]:
    """A field of every seed, as far as it is a number."""
    values = row.values(score)
    return [one for one in values if type(one) in (int, float)]


def by_parameters(
    axes: Any, rows: Sequence[Row], score: str = "bleu", names: Mapping[str, str] = METHODS
) -> None:
    """One mark a row, with the number that it has in the legend.

    Rows with as many parameters stand side by side around their place.
    """
    millions = [row.fact("parameters") / 1e6 for row in rows]
    step = SIDE_BY_SIDE * (max(millions) - min(millions) or 0.1 * max(millions))
    for number, (row, size) in enumerate(zip(rows, millions, strict=True)):
        equal = [other for other, there in enumerate(millions) if there == size]
        at = size + step * (equal.index(number) - (len(equal) - 1) / 2)
        scores = numbers(row, score)
        label = f"{number + 1}  {named(row.label, names)}"
        _marks(axes, [at], [scores], number, label, step * SEED_DODGE)
        top = statistics.fmean(scores) + (deviation(scores) or 0)
        axes.annotate(
            str(number + 1), (at, top), xytext=(0, 5),
            textcoords="offset points", ha="center", fontsize=9,
        )  # fmt: skip
    axes.set_xlabel("million parameters (models with as many stand side by side)")


def _marks(
    axes: Any,
    at: Sequence[float],
    scores: Sequence[Sequence[float]],
    number: int,
    label: str,
    seed_shift: float,
) -> None:
    """Means and standard deviations of rows, and their seeds ``seed_shift`` to the right."""
    colour, shape = COLOURS[number % len(COLOURS)], SHAPES[number % len(SHAPES)]
    axes.errorbar(
        at,
        [math.nan if (middle := mean(values)) is None else middle for values in scores],
        yerr=[math.nan if (sd := deviation(values)) is None else sd for values in scores],
        color=colour,
        marker=shape,
        markersize=6,
        linewidth=1.6,
        linestyle="--" if number >= len(COLOURS) else "-",
        elinewidth=1,
        capsize=3,
        label=label,
        zorder=3,
    )
    for x, values in zip(at, scores, strict=True):
        if len(values) > 1:
            axes.scatter(
                [x + seed_shift] * len(values), values, s=12, marker=shape,
                facecolors="white", edgecolors=colour, linewidths=0.9, zorder=4,
            )  # fmt: skip


def _style(axes: Any) -> None:
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.08, y=0.12)
    if len(axes.get_legend_handles_labels()[1]) > INSIDE:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        axes.figure.set_figwidth(WIDER)
    else:
        axes.legend(frameon=False)
