"""The page and the figure of ``fairseq-collab heads``, from ``heads.json``.

heads.md              the page (``templates/heads.md.j2``): a row for each head
heads.svg, heads.pdf  all heads: their prices as colours, and what they do

Values are ``[[x per head] per layer]``; layers may have different numbers of heads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from collab_common.files import write_contents
from collab_lab.results.figure import saved, styled
from collab_lab.results.render import TYPE_NAMES, grid, num, render

Content = Mapping[str, Any]
NAME, FIGURE = "heads.md", "heads.svg"
#: Format of the numbers of each measure.
MEASURES = {
    "price": ".4f",
    "importance": ".4f",
    "confidence": ".2f",
    "positional": ".2f",
    "rare": ".2f",
    "relevance": ".2f",
}
#: Measures from 0 to 1 that say what a head does: the figure names the highest.
SHARES = ("confidence", "positional", "rare")
#: Inches of a cell, and around a panel; the lowest price that has a colour, in bits.
CELL, AROUND, LEAST = (0.95, 0.55), 0.6, 1e-4
#: Even in lightness, for readers with any colour vision; black letters from this share on.
COLOURS, BRIGHT = "viridis", 0.44


def write_page(content: Content, out: Path) -> None:
    """Write the page, and the figure once prices are measured, each file atomically."""
    drawn = figure(content) if content["measures"].get("price") else None
    text = render(
        "heads.md.j2",
        content=content,
        number=sum(map(sum, content["heads"].values())),
        figure=drawn and FIGURE,
        measures=[name for name in MEASURES if content["measures"].get(name)],
        heads=grid(["head", *MEASURES, "roles"], rows(content), left=(0, 7)),
        relations=best_heads(content),
    )
    figures = {f"heads.{form}": saved(drawn, form) for form in ("svg", "pdf") if drawn}
    write_contents(out, {NAME: text, **figures})


def rows(content: Content) -> list[list[str]]:
    """A row for each head: its measures and roles, those of the lowest price first."""
    found = []
    for type_, layers in content["heads"].items():
        for i, j in ((i, j) for i, heads in enumerate(layers) for j in range(heads)):
            values = {name: value_of(content, name, type_, i, j) for name in MEASURES}
            cells = [num(values[name], spec) for name, spec in MEASURES.items()]
            roles = ", ".join(content["roles"][type_][i][j])
            found.append((values["price"] or 0, [f"{type_} {i}.{j}", *cells, roles or "-"]))
    return [cells for _, cells in sorted(found, key=lambda row: row[0])]


def value_of(content: Content, name: str, type_: str, layer: int, head: int) -> float | None:
    """A measure of a head; None where it does not apply, or was not measured."""
    layers = (content["measures"].get(name) or {}).get(type_)
    return layers[layer][head] if layers else None


@styled
def figure(content: Content) -> Figure:
    """A panel for each attention type, layer by head: price as colour and number, what it does."""
    price = content["measures"]["price"]
    prices = {type_: price[type_] for type_, heads in content["heads"].items() if any(heads)}
    width = max(len(layer) for layers in prices.values() for layer in layers)
    heights = [len(layers) * CELL[1] + AROUND for layers in prices.values()]
    page = Figure((width * CELL[0] + 2 * AROUND, sum(heights) + AROUND), layout="constrained")
    model = f"{content['arch']}, {Path(content['checkpoint']).name}, {content['data']}"
    page.suptitle(f"Price of each head (bits per target token), and what it does\n{model}")
    panels = page.subplots(len(prices), 1, height_ratios=heights, squeeze=False)[:, 0]
    highest = max(x for layers in prices.values() for layer in layers for x in layer)
    scale = LogNorm(LEAST, max(highest, 2 * LEAST), clip=True)
    for panel, (type_, layers) in zip(panels, prices.items(), strict=True):
        cells = np.array(list(zip_longest(*layers)), dtype=float).T
        panel.imshow(cells, cmap=COLOURS, norm=scale, aspect="auto")
        for (i, j), price in np.ndenumerate(cells):
            if not np.isnan(price):
                letters = "black" if scale(price) >= BRIGHT else "white"
                panel.text(j, i, f"{num(price, '.4f')}\n{does(content, type_, i, j)}", ha="center",
                           va="center", color=letters, size=7)  # fmt: skip
        panel.set_title(TYPE_NAMES[type_])
        panel.set(xticks=range(cells.shape[1]), yticks=range(len(layers)), ylabel="layer")
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    panels[-1].set_xlabel("head")
    page.colorbar(ScalarMappable(scale, COLOURS), ax=panels, shrink=0.8)
    return page


def does(content: Content, type_: str, layer: int, head: int) -> str:
    """The first role of a head; of one without, its highest measure."""
    if roles := content["roles"][type_][layer][head]:
        return re.sub(r"^syntactic (\S+).*", r"\1", roles[0])
    found = {name: value_of(content, name, type_, layer, head) for name in SHARES}
    known = {name: value for name, value in found.items() if value is not None}
    name = max(known, key=lambda one: known[one], default="")
    return name and f"{name} {known[name]:.2f}"


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
