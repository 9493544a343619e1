"""The results of ``fairseq-collab rank``: a table, a summary, and a figure, a column a site.

top      energy of each head's map against dimensions
middle   energy of all heads' maps together (what Cordonnier et al. 2020 call redundancy)
bottom   rank of the logits against sentence length (the bottleneck of Bhojanapalli et al. 2020)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tabulate import tabulate

from collab_common.files import write_contents
from fairseq_collab.analysis.rank.measure import Row
from fairseq_collab.results.figure_style import BLUE, GREEN, PURPLE, SITE_NAMES, VERMILION, saved
from fairseq_collab.results.tables import csv_text

Curve = NDArray[np.float64]
LINES = {
    "map": (BLUE, "-", "mean of all heads (thin: each)"),
    "sum": (VERMILION, "-", "sum of the heads' maps"),
    "stacked_queries": (GREEN, "-", "maps side by side (queries)"),
    "stacked_keys": (PURPLE, "--", "maps one above the other (keys)"),
}
LEVELS = {"dims99": (VERMILION, "99 %"), "dims95": (GREEN, "95 %"), "dims90": (BLUE, "90 %")}
KINDS = (*LINES, "logits", "logits_centred")


def write(rows: Sequence[Row], out: Path, title: str) -> list[str]:
    """Write ``rank.csv``, ``rank.png`` and ``rank.pdf`` to a folder; their names."""
    figure = rank_figure(rows, title)
    lines = [{name: _cell(value) for name, value in vars(row).items()} for row in rows]
    files: dict[str, bytes | str] = {"rank.csv": csv_text(lines)}
    files |= {f"rank.{form}": saved(figure, form, dots_per_inch=100) for form in ("png", "pdf")}
    write_contents(out, files)
    return [*files]


def _cell(value: Any) -> Any:
    """Singular values are joined by spaces; what does not apply is empty."""
    if isinstance(value, tuple):
        return " ".join(f"{number:.4g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else value


def summary(rows: Sequence[Row]) -> str:
    """Means over layers, heads and sentences, a line for each site and kind; and short heads."""
    columns = ("site", "kind", "bound", "rank", "90 %", "95 %", "99 % of energy", "95 % untrained")
    lines = []
    for site, kind in product(SITE_NAMES, KINDS):
        trained, untrained = (
            [row for row in rows if (row.site, row.kind, row.weights) == (site, kind, weights)]
            for weights in ("trained", "untrained")
        )
        if trained:
            names = ("bound", "rank", "dims90", "dims95", "dims99")
            means = [mean_of(trained, name) for name in names]
            means += [mean_of(untrained, "dims95")] if untrained else []
            lines.append([site, kind, *means])
    table = tabulate(lines, columns, "plain", floatfmt=".1f")
    # Where a sentence is longer than a head is wide, the head cannot attend at will.
    logits = [row for row in rows if row.kind == "logits"]
    longer, total = (sum(getattr(row, name) for row in logits) for name in ("longer", "sentences"))
    return (
        f"{table}\nsentences longer than the head is wide: {longer} of {total}, all heads counted"
    )


def mean_of(rows: Sequence[Row], name: str) -> float:
    """Over all matrices of the rows: those of several sentences count for as many."""
    counts = [row.sentences or 1 for row in rows]
    return float(np.average([getattr(row, name) for row in rows], weights=counts))


def rank_figure(rows: Sequence[Row], title: str) -> Figure:
    """Draw the rows that were measured; sites that a model lacks have no column."""
    sites = [site for site in SITE_NAMES if any(row.site == site for row in rows)]
    figure = Figure(figsize=(4 * len(sites) + 2.5, 10.5), layout="constrained")
    figure.suptitle(f"How much of their dimensions heads use: {title}", fontsize=12)
    panels = figure.subplots(3, len(sites), squeeze=False, sharey="row")
    for column, site in zip(panels.T, sites, strict=True):
        here = [row for row in rows if row.site == site]
        column[0].set_title(SITE_NAMES[site])
        maps = [row for row in here if row.kind == "map"]
        _draw_energy(column[0], maps, "a head has")
        together = [row for row in here if row.kind in LINES and row.kind != "map"]
        _draw_energy(column[1], together, "the heads together have")
        _draw_logits(column[2], here)
    panels[2, 0].set_ylim(bottom=0)  # for the row; only now, since it ends automatic scaling
    labels = (
        "share of energy,\neach head's map",
        "share of energy,\nall heads of a layer together",
        "dimensions of the logits\nof one head and sentence",
    )
    for panel, label in zip(panels[:, 0], labels, strict=True):
        panel.set_ylabel(label)
    for panel in panels[:, -1]:
        panel.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1))
    return figure


def _draw_energy(axes: Axes, rows: Sequence[Row], whose: str) -> None:
    """The energy in the first dimensions, after training and before it."""
    for kind, (color, line, label) in LINES.items():
        trained, untrained = (
            [_cumulative(row) for row in rows if (row.kind, row.weights) == (kind, weights)]
            for weights in ("trained", "untrained")
        )
        if kind == "map":
            for curve in trained:
                axes.plot(curve, color=color, linewidth=0.6, alpha=0.4)
        if trained:
            axes.plot(_mean(trained), line, color=color, linewidth=2.2, label=label)
        if untrained:
            axes.plot(_mean(untrained), ":", color=color)
    axes.plot([], [], ":", color="grey", label="before training")
    bounds = {row.bound for row in rows if row.weights == "trained"}
    least, most = min(bounds), max(bounds)
    axes.set_xlabel(f"dimensions ({whose} {least:g}{f' to {most:g}' * (least != most)})")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)


def _draw_logits(axes: Axes, rows: Sequence[Row]) -> None:
    raw = [row for row in rows if row.kind == "logits"]
    centred = [row for row in rows if row.kind == "logits_centred"]
    axes.plot(*_by_length(raw, "bound"), "-", color="grey", label="bound min(n, h)")
    axes.plot(*_by_length(raw, "rank"), "o", color="black", markersize=3.5, label="numerical rank")
    for name, (color, share) in LEVELS.items():
        lengths, means = _by_length(centred, name)
        label = f"{share} of energy, rows centred"
        axes.plot(lengths, means, "-", color=color, linewidth=2, label=label)
        least, most = (_by_length(centred, name, end)[1] for end in (np.min, np.max))
        axes.fill_between(lengths, least, most, color=color, alpha=0.12, linewidth=0)
    axes.set_xlabel("length n in subwords (shade: all heads)")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)


def _cumulative(row: Row) -> Curve:
    """Share of the energy in the first 0, 1, 2, ... dimensions."""
    return np.concatenate([[0], np.cumsum(np.square(row.spectrum))])


def _mean(curves: Sequence[Curve]) -> Curve:
    """The mean of curves, of which shorter ones go on at their last value."""
    longest = max(map(len, curves))
    return np.mean([np.pad(curve, (0, longest - len(curve)), "edge") for curve in curves], axis=0)


def _by_length(
    rows: Sequence[Row], name: str, summarise: Callable[[list[float]], Any] = np.mean
) -> tuple[list[Any], list[Any]]:
    """Lengths, and ``name`` over all heads and layers at each."""
    bins = sorted({row.length_from or 0 for row in rows})
    groups = [[row for row in rows if row.length_from == start] for start in bins]
    lengths = [np.mean([row.length for row in group]) for group in groups]
    return lengths, [summarise([getattr(row, name) for row in group]) for group in groups]
