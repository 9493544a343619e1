"""The page, the figures and the summary of ``fairseq-collab heads``, from ``heads.json``.

heads.md                   the page (``templates/heads.md.j2``)
heads_MEASURE.png          layer by head, the attention types side by side

Values are ``[[x per head] per layer]``; layers may have different numbers of heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from collab_common.files import write_contents
from collab_lab.results.figure import saved, styled
from collab_lab.results.render import TYPE_NAMES, grid, mean, num, render

Content = Mapping[str, Any]
NAME = "heads.md"
DOTS_PER_INCH = 120
#: Inches of a cell, and of the margins of a panel.
CELL, AROUND = 0.55, 1.1
#: Even in lightness, for readers with any colour vision; black letters from this share on.
COLOURS, BRIGHT = "viridis", 0.44
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
#: Title of each measure, whether it is between 0 and 1, and the format of its numbers.
MEASURES = {
    "confidence": ("Confidence", True, ".2f"),
    "positional": ("Positional score", True, ".2f"),
    "rare": ("Rare-token score", True, ".2f"),
    "importance": ("Importance", False, ".2g"),
    "price": ("Price", False, ".2g"),
    "relevance": ("Relevance", False, ".2f"),
}


def write(content: Content, out: Path) -> None:
    """Write the page and its figures, each file atomically."""
    drawn = draw(content)
    prices = content["measures"].get("price")
    roles = [
        (
            f"{TYPE_NAMES[type_]}, layer {i}, head {j}",
            ", ".join(names),
            num(prices and prices[type_][i][j], MEASURES["price"][2]),
        )
        for type_, layers in types_in(content.get("roles")).items()
        for i, layer in enumerate(layers)
        for j, names in enumerate(layer)
        if names
    ]
    text = render(
        "heads.md.j2",
        content=content,
        heads=sum(map(sum, content["heads"].values())),
        figures=list(drawn),
        measures=[(name, MEASURES[name][0]) for name, _ in measured(content)],
        roles=roles,
        relations=best_heads(content),
    )
    write_contents(out, {NAME: text, **drawn})


def summary(content: Content) -> str:
    """Means of the heads of each layer and their roles; the best head of each relation."""
    names = ("confidence", "positional", "relevance", "price")
    specs = [MEASURES[name][2] for name in names]
    rows = []
    for type_, layers in types_in(content["heads"]).items():
        for i in range(len(layers)):
            found = [types_in(content["measures"].get(name)).get(type_) for name in names]
            means = [mean(x for x in one[i] if x is not None) if one else None for one in found]
            roles = content["roles"][type_][i]
            named = "; ".join(f"{j}: {', '.join(of)}" for j, of in enumerate(roles) if of)
            rows.append([TYPE_NAMES[type_], i, *map(num, means, specs), named or "-"])
    lines = [grid(["attention type", "layer", *names, "roles"], rows, left=(0, 6))]
    for one in best_heads(content):
        lines.append(
            f"{one['relation']}: {one['accuracy']:.1%} by head {one['head']} of layer "
            f"{one['layer']}, {one['baseline']['accuracy']:.1%} at offset "
            f"{one['baseline']['offset']:+d}, {one['pairs']:,} pairs"
        )
    return "\n".join(lines)


def draw(content: Content) -> dict[str, bytes]:
    """The figure of each measure that has a number, by file name."""
    return {
        f"heads_{name}.png": saved(measure_figure(name, found), "png", DOTS_PER_INCH)
        for name, found in measured(content)
    }


def types_in(part: Content | None) -> dict[str, Any]:
    """The attention types of a part of ``heads.json``, in their order; nothing for null."""
    return {type_: part[type_] for type_ in TYPE_NAMES if part and part.get(type_)}


def measured(content: Content) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each measure that has a number, with its attention types."""
    for name in MEASURES:
        found = types_in(content["measures"].get(name))
        if any(x is not None for layers in found.values() for layer in layers for x in layer):
            yield name, found


def _panels(found: Mapping[str, Sequence[Sequence[Any]]], title: str) -> tuple[Figure, list[Axes]]:
    """A panel per attention type, wide enough for its heads and high enough for its layers."""
    widths = [max(map(len, layers)) * CELL + AROUND for layers in found.values()]
    height = max(map(len, found.values())) * CELL + AROUND
    page = Figure(figsize=(sum(widths) + 0.6, height + 0.6), layout="constrained")
    page.suptitle(title, fontsize=11)
    panels = page.subplots(1, len(found), width_ratios=widths, squeeze=False)[0]
    for panel, (type_, layers) in zip(panels, found.items(), strict=True):
        panel.set_title(TYPE_NAMES[type_], fontsize=10)
        panel.set_xticks(range(max(map(len, layers))))
        panel.set_yticks(range(len(layers)))
        panel.set_xlabel("head")
        panel.set_ylabel("layer")
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    return page, list(panels)


@styled
def measure_figure(name: str, found: Mapping[str, Any]) -> Figure:
    """Heat maps of one measure, from 0 or its lowest number on."""
    title, is_share, spec = MEASURES[name]
    page, panels = _panels(found, title)
    numbers = [x for layers in found.values() for layer in layers for x in layer if x is not None]
    scale = Normalize(min(0.0, *numbers), 1.0 if is_share else max(numbers))
    for panel, layers in zip(panels, found.values(), strict=True):
        cells = np.array(list(zip_longest(*layers)), dtype=float).T
        panel.imshow(cells, cmap=COLOURS, norm=scale)
        for (i, j), value in np.ndenumerate(cells):
            if not np.isnan(value):
                letters = "black" if scale(value) >= BRIGHT else "white"
                panel.text(j, i, num(value, spec), **CENTRED, color=letters, size=7)
    page.colorbar(ScalarMappable(scale, COLOURS), ax=panels, shrink=0.8)
    return page


def best_heads(content: Content) -> list[dict[str, Any]]:
    """Of each relation and direction with pairs: its best head, and the baseline."""
    return [
        {
            "relation": f"{relation} {direction}",
            "pairs": found["pairs"],
            "baseline": found["baseline"],
            **max(
                (
                    {"accuracy": accuracy, "layer": i, "head": j}
                    for i, layer in enumerate(found["encoder"])
                    for j, accuracy in enumerate(layer)
                ),
                key=lambda head: head["accuracy"],
            ),
        }
        for relation, directions in (content.get("syntax") or {}).get("relations", {}).items()
        for direction, found in directions.items()
        if found["pairs"]
    ]
