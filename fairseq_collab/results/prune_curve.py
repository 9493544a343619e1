"""What ``fairseq-collab prune-curve`` has found: ``curve.json``, ``table.md``, ``curve.png``.

    {"version": 1, "settings": {...}, "heads": {"encoder": [8, 8], ...}, "importance": {...},
     "points": [{"curve": "encoder", "removed": 2, "of": 16, "bleu": 39.5, "seconds": 60.1,
                 "kept": {"encoder": [[0, 1, ...], ...], ...}}, ...]}

The file is written again, whole, after each point: a command that was interrupted goes on after the
last one.  ``importance`` is what heads were ordered by; null where it was measured at every step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from collab_common.errors import UserError
from collab_common.files import read_versioned, write_content, write_contents
from fairseq_collab.prune.choices import Heads, Measure
from fairseq_collab.prune.curve import CURVES, Curve, free_heads
from fairseq_collab.prune.surgery import Kept
from fairseq_collab.results.figure_style import COLOURS, SHAPES, SITE_NAMES, saved
from fairseq_collab.results.html import render

VERSION = 1
NAME, TABLE, FIGURE = "curve.json", "table.md", "curve.png"
CURVE_NAMES = {**SITE_NAMES, "all": "all attentions"}
#: BLEU that Voita et al. (2019) let a pruned model lose when they count the heads it needs.
LOSS = 0.25


@dataclass(frozen=True)
class Point:
    """BLEU of one pruned model.

    Attributes:
        removed: how many heads are gone, ``of`` how many of the curve's sites.
        seconds: that the point took.
        accuracies: on contrastive pairs (0 to 100), by phenomenon; where they were asked for.
    """

    curve: Curve
    removed: int
    of: int
    bleu: float
    seconds: float
    kept: Kept
    accuracies: dict[str, float] | None = None


class Results:
    """The points of all curves, on the disk as soon as they are added.

    Args:
        settings: what points depend on; points of other settings are refused.
        circumstances: under which the file was last written.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], circumstances: Mapping[str, Any]):
        self.path = folder / NAME
        self.settings, self.circumstances = settings, circumstances
        self.heads: Heads = {}
        self.importance: Measure | None = None
        self.points: list[Point] = []
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        another = "give another --out"
        content = read_versioned(self.path, VERSION, "curve", another)
        try:
            found = content["settings"]
            self.importance = content["importance"]
            self.points = [Point(**point) for point in content["points"]]
        except (KeyError, TypeError) as error:
            raise UserError("its points are damaged", self.path, another) from error
        for name, value in self.settings.items():
            if found.get(name) != value:
                what = f"holds a curve with {name} {found.get(name)}, not {value}"
                raise UserError(what, self.path, another)

    def find(self, curve: Curve, removed: int) -> Point | None:
        """The point of so many heads; that of none is the same in all curves."""
        for point in self.points:
            if point.removed == removed and (removed == 0 or point.curve == curve):
                return point
        return None

    def add(self, point: Point) -> None:
        """Keep a point."""
        self.points.append(point)
        self.write()

    def write(self) -> None:
        """Write the file as a whole or not at all."""
        content = {
            "version": VERSION,
            **self.circumstances,
            "settings": self.settings,
            "heads": self.heads,
            "importance": self.importance,
            "points": [asdict(point) for point in self.points],
        }
        write_content(self.path, f"{json.dumps(content, ensure_ascii=False)}\n".encode())

    def curves(self) -> dict[Curve, list[Point]]:
        """Those that have points with fewer heads: their points, from no heads removed up."""
        found: dict[Curve, list[Point]] = {}
        for curve in CURVES:
            own = [point for point in self.points if point.curve == curve and point.removed]
            if own and (whole := self.find(curve, 0)):
                found[curve] = [whole, *sorted(own, key=lambda point: point.removed)]
        return found


def write_report(results: Results) -> str:
    """Write table and figure; the table."""
    folder = results.path.parent
    text = table(results.curves(), results.settings)
    write_contents(folder, {TABLE: text, FIGURE: saved(draw(results.curves()), "png")})
    return text


def table(curves: Mapping[Curve, Sequence[Point]], settings: Mapping[str, Any]) -> str:
    """Markdown: a line for each number of heads removed, for each curve its own numbers."""
    free = {
        curve: free_heads([(point.removed, point.bleu) for point in points], LOSS)
        for curve, points in curves.items()
    }
    return render(
        "prune_curve.md.j2", curves=curves, free=free, loss=LOSS, names=CURVE_NAMES, **settings
    )


def draw(curves: Mapping[Curve, Sequence[Point]]) -> Figure:
    """BLEU against the share of heads removed, a line a curve."""
    page = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = page.add_subplot()
    for (curve, points), colour, shape in zip(curves.items(), COLOURS, SHAPES, strict=False):
        total = points[-1].of
        shares = [100 * point.removed / total for point in points]
        label = f"{CURVE_NAMES[curve]} ({total} heads)"
        bleu = [point.bleu for point in points]
        axes.plot(shares, bleu, color=colour, marker=shape, label=label)
    whole = next(iter(curves.values()))[0].bleu
    axes.axhspan(whole - LOSS, whole, color="black", alpha=0.12, linewidth=0)
    axes.set_xlabel("heads removed, % of those of the site")
    axes.set_ylabel(f"BLEU (grey: up to {LOSS} below the whole model)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="lower left")
    return page
