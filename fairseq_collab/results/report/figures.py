"""The figures of a data set: BLEU against what a model costs, and how the losses fell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_collab.results.markup import Markup, element, join
from fairseq_collab.results.report import chart
from fairseq_collab.results.report.chart import Axis, Point
from fairseq_collab.results.report.words import breakable, budget_text, interval_text, row_text

Content = Mapping[str, Any]


@dataclass(frozen=True)
class Against:
    """What BLEU is drawn against: a field of rows; ``front`` is drawn, ``joined`` along methods."""

    field: str
    name: str
    title: str
    show: Callable[[float], str]
    bands: bool = False
    front: bool = False
    joined: bool = False


def _millions(value: float) -> str:
    return f"{value / 1e6:g}"


FIGURES = (
    Against("key_dim", "key dimension, all heads together", "BLEU against key dimension",
            lambda value: f"{value:g}", bands=True, joined=True),
    Against("parameters", "million parameters", "BLEU against parameters", _millions, front=True),
    Against("multiply_adds", "million multiply-adds a sentence pair",
            "BLEU against multiply-adds", _millions, front=True),
    Against("key_bytes_per_target_token", "key-cache bytes a target token",
            "BLEU against key-cache bytes", lambda value: f"{value:,.0f}", bands=True),
)  # fmt: skip


def against_costs(section: Content, prefix: str) -> Markup:
    """All figures that have something to show, and a line for each that has not."""
    parts, missing = [], []
    for figure in FIGURES:
        drawn = _figure(section, figure, prefix)
        if drawn is None:
            missing.append(figure.title)
        else:
            parts.append(drawn)
    if missing:
        left = f"Left out, since all rows of a budget have one value or none: {', '.join(missing)}."
        parts.append(element("p", left, class_="how"))
    return join(parts)


def _figure(section: Content, figure: Against, prefix: str) -> Markup | None:
    """A drawing for each budget that has two values or more; None if none has."""
    rows = [row for row in section["rows"] if row[figure.field]]
    y = _ends(rows)
    drawings = []
    for budget in section["budgets"]:
        chosen = [row for row in rows if row["number"] in budget["rows"]]
        if len({row[figure.field] for row in chosen}) > 1:
            drawings.append(_drawing(chosen, budget, figure, y, prefix))
    if not drawings:
        return None
    caption = "Numbers are those of the rows in the table; bars are 95 % intervals over sentences. "
    if figure.bands:
        caption += "Between two vertical lines all marks have the same value."
    else:
        caption += "Marks with nearly the same place stand side by side, around it."
    if figure.front:
        caption += (
            " Ringed and joined: the Pareto front, rows than which no other is both as small and "
            "as good."
        )
    return element(
        "figure",
        element("h4", figure.title),
        element("div", *drawings, class_="charts"),
        element("figcaption", caption),
    )


def _ends(rows: Sequence[Content]) -> tuple[float, float]:
    low = min((row["bleu"]["low"] for row in rows), default=0.0)
    high = max((row["bleu"]["high"] for row in rows), default=1.0)
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


def _drawing(
    rows: Sequence[Content],
    budget: Content,
    figure: Against,
    y: tuple[float, float],
    prefix: str,
) -> Markup:
    series = list(dict.fromkeys((row["experiment"], row["method"]) for row in rows))
    points = [
        Point(
            x=row[figure.field],
            y=row["bleu"]["mean"],
            low=row["bleu"]["low"],
            high=row["bleu"]["high"],
            label=str(row["number"]),
            text=f"{row_text(row)}: {row[figure.field]:,} ({figure.name}), BLEU "
            f"{interval_text(row['bleu'])}",
            series=series.index((row["experiment"], row["method"])),
        )
        for row in rows
    ]
    numbers = [row["number"] for row in rows]
    front = budget["fronts"][figure.field] if figure.front else []
    title = f"{figure.title}, {budget_text(budget)}"
    drawing = chart.scatter(
        f"{prefix}-{figure.field}-{budget['letter']}",
        title,
        points,
        Axis(figure.name, figure.show, figure.bands),
        y,
        lines=_joined(rows, figure.field) if figure.joined else (),
        front=[numbers.index(number) for number in front],
    )
    names = [
        (i, breakable(f"{method} ({experiment})")) for i, (experiment, method) in enumerate(series)
    ]
    shown = f"Pareto front: rows {', '.join(map(str, front))}."
    listed = [element("p", shown, class_="panel")] if front else []
    return element(
        "div",
        element("p", budget_text(budget), class_="panel"),
        drawing,
        chart.legend(names),
        *listed,
        class_="drawing",
    )


def _joined(rows: Sequence[Content], field: str) -> list[list[int]]:
    """The rows of a method that vary the same, in order, if each value is there once."""
    lines: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        varied = [choice.partition("=")[0] for choice in row["variant"].split(", ")]
        lines.setdefault((row["experiment"], row["method"], *varied), []).append(place)
    return [
        sorted(line, key=lambda place: rows[place][field])
        for line in lines.values()
        if len({rows[place][field] for place in line}) == len(line)
    ]


def learning_curves(section: Content, prefix: str) -> Markup:
    """One small drawing a row, all of an experiment with the same axes."""
    points = {
        curve["row"]: [(run["seed"], run["points"]) for run in curve["runs"] if run["points"]]
        for curve in section["curves"]
    }
    experiments = dict.fromkeys(row["experiment"] for row in section["rows"])
    parts = []
    for experiment in experiments:
        rows = [row for row in section["rows"] if row["experiment"] == experiment]
        drawn = {row["number"]: [p for _, p in points[row["number"]]] for row in rows}
        every = [point for curves in drawn.values() for curve in curves for point in curve]
        missing = [str(number) for number, curves in drawn.items() if not curves]
        if every and len({x for x, _ in every}) == 1:
            parts += [element("h4", breakable(experiment)), _points(rows, points, every[0][0])]
        elif every:
            panels = [
                _panel(row, points[row["number"]], drawn, every, prefix)
                for row in rows
                if drawn[row["number"]]
            ]
            parts += [
                element("h4", breakable(experiment)),
                element("div", *panels, class_="smalls"),
            ]
        if missing:
            text = f"No validation is recorded for rows {', '.join(missing)}."
            parts.append(element("p", text, class_="how"))
    return join(parts)


def _points(rows: Sequence[Content], points: Mapping[int, Any], updates: float) -> Markup:
    """What stands in the place of curves where all trainings were validated once."""
    found = [
        f"{row_text(row)}: {_last(points[row['number']])}" for row in rows if points[row["number"]]
    ]
    start = f"Validated once, after {updates:,.0f} updates. "
    return element("p", start, "; ".join(found), ".", class_="how")


def _last(seeds: Sequence[tuple[int, Sequence[Sequence[float]]]]) -> str:
    return ", ".join(f"seed {seed}: {curve[-1][1]:.2f}" for seed, curve in seeds)


def _panel(
    row: Content,
    seeds: Sequence[tuple[int, Sequence[Sequence[float]]]],
    drawn: Mapping[int, Sequence[Any]],
    every: Sequence[Sequence[float]],
    prefix: str,
) -> Markup:
    xs, ys = [x for x, _ in every], [y for _, y in every]
    others = [c for number, curves in drawn.items() if number != row["number"] for c in curves]
    text = "; ".join(
        f"seed {seed}: " + ", ".join(f"{y:g} after {x:,} updates" for x, y in curve)
        for seed, curve in seeds
    )
    drawing = chart.small(
        f"{prefix}-curve-{row['number']}",
        f"Validation loss of row {row_text(row)}",
        [curve for _, curve in seeds],
        others,
        ((min(xs), max(xs)), (min(ys), max(ys))),
        text,
    )
    caption = element(
        "figcaption", element("strong", breakable(row_text(row))), element("span", _last(seeds))
    )
    return element("figure", drawing, caption)
