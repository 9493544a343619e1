"""Charts as inline SVG: drawn in the colours of the page's style sheet, light or dark.

Lengths are in the SVG's own units.  A chart is as wide as its column, so that a unit is about a
pixel on a phone and a little more on a desktop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fairseq_collab.results.markup import Markup, element, join
from fairseq_collab.results.report.layout import nice_ticks, spread

WIDTH, HEIGHT = 440, 330
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 20, 46
#: Least distance of two marks side by side, and of two labels of an axis.
MARK_GAP, LABEL_GAP = 17, 34
MARGIN = 14  # between the axes' ends and the outermost marks
BAND = 2.2  # least width of a band, in marks side by side
#: Seven shapes with seven colours; the next seven methods have the same colours in other shapes.
STYLES = 7
#: Corners of a shape around (0, 0), in units.
_SHAPES = (
    "",  # a circle
    "-4.6,-4.6 4.6,-4.6 4.6,4.6 -4.6,4.6",
    "0,-6 5.8,4.6 -5.8,4.6",
    "0,-6.4 6.4,0 0,6.4 -6.4,0",
    "0,6 5.8,-4.6 -5.8,-4.6",
    "-2,-6 2,-6 2,-2 6,-2 6,2 2,2 2,6 -2,6 -2,2 -6,2 -6,-2 -2,-2",
    "0,-6.4 6.2,-1.8 3.8,5.4 -3.8,5.4 -6.2,-1.8",
)


@dataclass(frozen=True)
class Point:
    """A row: ``label`` stands above it, ``text`` is read in its place."""

    x: float
    y: float
    low: float
    high: float
    label: str
    text: str
    series: int


@dataclass(frozen=True)
class Axis:
    """What stands below: ``show`` writes a number, ``bands`` gives each value a place of its own.

    With bands places have no scale, but every mark stands within those of its value.
    """

    name: str
    show: Callable[[float], str]
    bands: bool = False


@dataclass
class Frame:
    """Where numbers stand between the axes."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = RIGHT
    top: float = TOP
    bottom: float = BOTTOM
    margins: tuple[float, float] = (MARGIN, MARGIN)
    parts: list[Markup] = field(default_factory=list)

    def px(self, value: float) -> float:
        low, high = self.x
        room = self.width - self.left - self.right - sum(self.margins)
        part = (value - low) / (high - low) if high > low else 0.5
        return self.left + self.margins[0] + part * room

    def py(self, value: float) -> float:
        low, high = self.y
        part = (value - low) / (high - low) if high > low else 0.5
        return self.height - self.bottom - part * (self.height - self.bottom - self.top)


def mark(series: int, x: float, y: float, label: str = "") -> Markup:
    """The shape and colour of a series; ``label`` appears under the pointer."""
    shape = (series + series // STYLES) % STYLES
    name = [element("title", label)] if label else []
    style = f"mark c{series % STYLES}"
    if not _SHAPES[shape]:
        return element("circle", *name, cx=_n(x), cy=_n(y), r=5, class_=style)
    moved = f"translate({_n(x)} {_n(y)})"
    return element("polygon", *name, points=_SHAPES[shape], transform=moved, class_=style)


def key(series: int) -> Markup:
    """The mark of a series in a legend."""
    return element("svg", mark(series, 8, 8), viewBox="0 0 16 16", class_="key", aria_hidden="true")


def scatter(
    identity: str,
    title: str,
    points: Sequence[Point],
    x: Axis,
    y: tuple[float, float],
    lines: Sequence[Sequence[int]] = (),
    front: Sequence[int] = (),
) -> Markup:
    """Points with intervals against ``x``; marks with (nearly) the same ``x`` stand side by side.

    Args:
        identity: unique in the page
        y: lowest and highest of the axis
        lines: places of points to join
        front: places of points of the Pareto front, joined by a broken line
    """
    frame = Frame((min(point.x for point in points), max(point.x for point in points)), y)
    frame.parts += _y_axis(frame, "BLEU")
    values = [point.x for point in points]
    places = _in_bands(frame, values, x) if x.bands else _on_scale(frame, values, x)
    for joined, style in [*((line, "line") for line in lines), (front, "front")]:
        path = " ".join(f"{_n(places[i])},{_n(frame.py(points[i].y))}" for i in joined)
        if len(joined) > 1:
            colour = f" c{points[joined[0]].series % STYLES}" if style == "line" else ""
            frame.parts.append(element("polyline", points=path, class_=style + colour))
    for point, place in zip(points, places, strict=True):
        frame.parts += _interval(frame, point, place)
    for i, (point, place) in enumerate(zip(points, places, strict=True)):
        here = frame.py(point.y)
        if i in front:
            frame.parts.append(element("circle", cx=_n(place), cy=_n(here), r=9, class_="ring"))
        frame.parts.append(mark(point.series, place, here, point.text))
    described = "; ".join(point.text for point in points)
    return svg(identity, title, described, frame)


def _on_scale(frame: Frame, values: Sequence[float], axis: Axis) -> list[float]:
    """Draw a linear axis; where the marks stand, the outermost ones with room beside them."""
    alone = spread([frame.px(value) for value in values], MARK_GAP, -math.inf, math.inf)
    low, high = frame.left + MARGIN, frame.width - frame.right - MARGIN
    more = max(0.0, low - min(alone)), max(0.0, max(alone) - high)
    frame.margins = (MARGIN + more[0], MARGIN + more[1])
    ticks = nice_ticks(*frame.x)
    frame.parts += _x_axis(frame, axis, [(frame.px(tick), tick) for tick in ticks])
    ends = (frame.left + MARGIN / 2, frame.width - frame.right - MARGIN / 2)
    return spread([frame.px(value) for value in values], MARK_GAP, *ends)


def _in_bands(frame: Frame, values: Sequence[float], axis: Axis) -> list[float]:
    """Draw an axis of values side by side, each as wide as its marks need; where they stand."""
    different = sorted(set(values))
    counts = [max(BAND, 1 + values.count(value)) for value in different]
    room = (frame.width - frame.left - frame.right) / sum(counts)
    places = [0.0] * len(values)
    ticks, start = [], frame.left
    for value, count in zip(different, counts, strict=True):
        end = start + room * count
        members = [i for i, other in enumerate(values) if other == value]
        middle = (start + end) / 2
        for i, place in zip(
            members,
            spread([middle] * len(members), min(MARK_GAP, room), start, end),
            strict=True,
        ):
            places[i] = place
        if start > frame.left:
            frame.parts.append(_line(start, frame.top, start, frame.height - frame.bottom, "grid"))
        ticks.append((middle, value))
        start = end
    frame.parts += _x_axis(frame, axis, ticks)
    return places


def _interval(frame: Frame, point: Point, place: float) -> list[Markup]:
    low, high = frame.py(point.low), frame.py(point.high)
    bar = element(
        "line", x1=_n(place), x2=_n(place), y1=_n(low), y2=_n(high),
        class_=f"interval c{point.series % STYLES}",
    )  # fmt: skip
    return [bar, _text(place, high - 4, point.label, "number")]


def svg(identity: str, title: str, described: str, frame: Frame) -> Markup:
    """A drawing with a name and, for those who do not see it, all that it shows."""
    return element(
        "svg",
        element("title", title, id=f"{identity}-title"),
        element("desc", described, id=f"{identity}-text"),
        *frame.parts,
        viewBox=f"0 0 {_n(frame.width)} {_n(frame.height)}",
        role="img",
        aria_labelledby=f"{identity}-title {identity}-text",
        class_="chart",
    )


def _y_axis(frame: Frame, name: str) -> list[Markup]:
    right = frame.width - frame.right
    parts = []
    for tick in nice_ticks(*frame.y):
        at = frame.py(tick)
        parts.append(_line(frame.left, at, right, at, "grid"))
        parts.append(_text(frame.left - 6, at + 4, f"{tick:g}", "end"))
    return [*parts, _text(4, 11, name, "start")]


def _x_axis(frame: Frame, axis: Axis, ticks: Sequence[tuple[float, float]]) -> list[Markup]:
    """The axis with ``ticks``, places and numbers; those without room have no label."""
    base = frame.height - frame.bottom
    parts = [_line(frame.left, base, frame.width - frame.right, base, "axis")]
    last = -math.inf
    for at, number in ticks:
        parts.append(_line(at, base, at, base + 4, "axis"))
        if at - last >= LABEL_GAP:
            parts.append(_text(at, base + 17, axis.show(number), "middle"))
            last = at
    middle = (frame.left + frame.width - frame.right) / 2
    return [*parts, _text(middle, frame.height - 6, axis.name, "middle")]


def small(
    identity: str,
    title: str,
    curves: Sequence[Sequence[Sequence[float]]],
    others: Sequence[Sequence[Sequence[float]]],
    ends: tuple[tuple[float, float], tuple[float, float]],
    described: str,
) -> Markup:
    """Curves of one row in a small drawing, before those of others in grey.

    Args:
        curves, others: [x, y] pairs
        ends: of both axes, the same in all drawings that stand together
    """
    frame = Frame(*ends, width=210, height=150, left=34, right=8, top=10, bottom=24)
    frame.margins = (4, 4)
    bottom = frame.height - frame.bottom
    for tick in nice_ticks(*ends[1], number=3):
        at = frame.py(tick)
        frame.parts.append(_line(frame.left, at, frame.width - frame.right, at, "grid"))
        frame.parts.append(_text(frame.left - 5, at + 4, f"{tick:g}", "end"))
    frame.parts.append(_line(frame.left, bottom, frame.width - frame.right, bottom, "axis"))
    first, last = ends[0]
    frame.parts.append(_text(frame.px(first) - 4, bottom + 16, f"{first:,.0f}", "start"))
    frame.parts.append(_text(frame.px(last) + 4, bottom + 16, f"{last:,.0f}", "end"))
    frame.parts += [_curve(frame, curve, "other") for curve in others if len(curve) > 1]
    for number, curve in enumerate(curves):
        frame.parts.append(_curve(frame, curve, f"curve{' dashed' if number % 2 else ''}"))
        x, y = curve[-1]
        frame.parts.append(
            element("circle", cx=_n(frame.px(x)), cy=_n(frame.py(y)), r=2.6, class_="end-mark")
        )
    return svg(identity, title, described, frame)


def _curve(frame: Frame, curve: Sequence[Sequence[float]], style: str) -> Markup:
    path = " ".join(f"{_n(frame.px(x))},{_n(frame.py(y))}" for x, y in curve)
    return element("polyline", points=path, class_=style)


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    return element("line", x1=_n(x1), y1=_n(y1), x2=_n(x2), y2=_n(y2), class_=style)


def _text(x: float, y: float, text: str, style: str) -> Markup:
    return element("text", text, x=_n(x), y=_n(y), class_=style)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def legend(names: Sequence[tuple[int, Markup]]) -> Markup:
    """What the shapes stand for."""
    items = [element("li", key(series), name) for series, name in names]
    return element("ul", join(items), class_="legend")
