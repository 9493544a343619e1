"""The page, the figures and the summary of ``fairseq-collab heads``, from ``heads.json``.

heads.md                   the page (``templates/heads.md.j2``)
heads_MEASURE.png          layer by head, the attention types side by side
heads_roles.png            which heads have which kinds of roles, in that layout
heads_syntax.png           the best head of each relation and the best fixed position

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
from matplotlib.patches import Patch

from collab_common.files import write_contents
from fairseq_collab.results.figure import BLUE, VERMILION, saved
from fairseq_collab.results.render import TYPE_NAMES, grid, mean, num, render

Content = Mapping[str, Any]
NAME = "heads.md"
DOTS_PER_INCH = 120
#: Inches of a cell, and of the margins of a panel.
CELL, AROUND = 0.55, 1.1
#: Even in lightness, for readers with any colour vision; black letters from this share on.
COLOURS, BRIGHT = "viridis", 0.44
#: By kind, the first word of a role; distinct for readers with any colour vision.
ROLES = {"positional": "#56b4e9", "syntactic": "#f0c24b", "rare": "#4cc9a0"}
EOS = "</s>"
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
#: Title of each measure, and whether it is between 0 and 1.
MEASURES = {
    "confidence": ("Confidence", True),
    "positional": ("Positional score", True),
    "rare": ("Rare-token score", True),
    "importance": ("Importance", True),
    "relevance": ("Relevance", False),
}


def write(content: Content, out: Path) -> None:
    """Write the page and its figures, each file atomically."""
    drawn = draw(content)
    roles = [
        (f"{TYPE_NAMES[type_]}, layer {i}, head {j}", ", ".join(names))
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
    names = ("confidence", "positional", "relevance")
    rows = []
    for type_, layers in types_in(content["heads"]).items():
        for i in range(len(layers)):
            found = [types_in(content["measures"].get(name)).get(type_) for name in names]
            means = [mean(x for x in one[i] if x is not None) if one else None for one in found]
            roles = content["roles"][type_][i]
            named = "; ".join(f"{j}: {', '.join(of)}" for j, of in enumerate(roles) if of)
            rows.append([TYPE_NAMES[type_], i, *(num(x, ".2f") for x in means), named or "-"])
    lines = [grid(["attention type", "layer", *names, "roles"], rows, left=(0, 5))]
    for one in best_heads(content):
        lines.append(
            f"{one['relation']}: {one['accuracy']:.1%} by head {one['head']} of layer "
            f"{one['layer']}, {one['baseline']['accuracy']:.1%} at offset "
            f"{one['baseline']['offset']:+d}, {one['pairs']:,} pairs"
        )
    return "\n".join(lines)


def draw(content: Content) -> dict[str, bytes]:
    """All figures that the content has something for, by file name."""
    pages = {f"heads_{name}.png": measure_figure(name, found) for name, found in measured(content)}
    roles = types_in(content.get("roles"))
    if any(names for layers in roles.values() for layer in layers for names in layer):
        pages["heads_roles.png"] = role_figure(roles)
    if best := best_heads(content):
        pages["heads_syntax.png"] = syntax_figure(best)
    return {name: saved(page, "png", DOTS_PER_INCH) for name, page in pages.items()}


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


def measure_figure(name: str, found: Mapping[str, Any]) -> Figure:
    """Heat maps of one measure, from 0 or its lowest number on."""
    title, is_share = MEASURES[name]
    page, panels = _panels(found, title)
    numbers = [x for layers in found.values() for layer in layers for x in layer if x is not None]
    scale = Normalize(min(0.0, *numbers), 1.0 if is_share else max(numbers))
    for panel, layers in zip(panels, found.values(), strict=True):
        cells = np.array(list(zip_longest(*layers)), dtype=float).T
        panel.imshow(cells, cmap=COLOURS, norm=scale)
        for (i, j), value in np.ndenumerate(cells):
            if not np.isnan(value):
                letters = "black" if scale(value) >= BRIGHT else "white"
                panel.text(j, i, num(value, ".2f"), **CENTRED, color=letters, size=7)
    page.colorbar(ScalarMappable(scale, COLOURS), ax=panels, shrink=0.8)
    return page


def role_figure(found: Mapping[str, Sequence[Sequence[Sequence[str]]]]) -> Figure:
    """Which head has which kinds of roles: the kinds of a head share its cell."""
    page, panels = _panels(found, "Roles of heads")
    for panel, layers in zip(panels, found.values(), strict=True):
        for i, layer in enumerate(layers):
            for j, names in enumerate(layer):
                kinds = sorted({name.split()[0] for name in names})
                width = 1 / max(len(kinds), 1)
                for part, kind in enumerate(kinds or [""]):
                    left, colour = j - 0.5 + part * width, ROLES.get(kind, "white")
                    panel.bar(left, 1, width, i - 0.5, align="edge", color=colour, edgecolor="gray")
                    panel.text(left + width / 2, i, kind[:1], **CENTRED, size=8)
        panel.set_xlim(-0.5, max(map(len, layers)) - 0.5)
        panel.set_ylim(len(layers) - 0.5, -0.5)
        panel.set_aspect("equal")
    patches = [Patch(color=colour, label=f"{kind[0]}: {kind}") for kind, colour in ROLES.items()]
    page.set_figheight(page.get_figheight() + 0.4)
    page.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8)
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


def syntax_figure(best: Sequence[Content]) -> Figure:
    """Accuracy of the best head and of the best fixed position, by relation and direction."""
    page = Figure(figsize=(6.4, 0.35 * len(best) + 1.2), layout="constrained")
    axes = page.add_subplot()
    at = np.arange(len(best))
    heads = [one["accuracy"] for one in best]
    positions = [one["baseline"]["accuracy"] for one in best]
    axes.hlines(at, positions, heads, color="#bbbbbb", zorder=1)
    axes.scatter(heads, at, marker="o", color=BLUE, label="best head")
    axes.scatter(positions, at, marker="s", color=VERMILION, label="best fixed position")
    axes.set_yticks(at, [one["relation"] for one in best])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("accuracy")
    axes.grid(axis="x", alpha=0.25)
    page.legend(loc="outside upper center", ncols=2, frameon=False)
    return page
