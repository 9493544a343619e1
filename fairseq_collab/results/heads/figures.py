"""The figures of ``fairseq-collab heads`` for pages of results: one PNG a measure, and three more.

heads_MEASURE.png       layer by head, the sites side by side
heads_roles.png         likewise: which head has which kinds of roles
heads_syntax.png        the best head of each relation beside the best fixed position
heads_attention.png     the first sentence: of each site the head that is most confident there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fairseq_collab.results.figure_style import BLUE, SITE_NAMES, VERMILION, saved
from fairseq_collab.results.heads import shown
from fairseq_collab.results.tables import num

DOTS_PER_INCH = 120
#: Inches of a cell, and of what stands around a panel.
CELL, AROUND = 0.55, 1.1
#: As in ``style.css``: distinct for readers with any colour vision.
ROLES = {"positional": "#56b4e9", "syntactic": "#f0c24b", "rare": "#4cc9a0"}
OTHER, NO_ROLE = "#d9d9d9", "#ffffff"
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}


def draw(content: shown.Content) -> dict[str, bytes]:
    """All figures that the content has something for, by file name."""
    pages = {
        f"heads_{name}.png": measure_figure(about, found)
        for name, about, found in shown.measured(content)
    }
    if roles := shown.with_roles(shown.sites_in(content.get("roles"))):
        pages["heads_roles.png"] = role_figure(roles)
    if relations := (content.get("syntax") or {}).get("relations"):
        pages["heads_syntax.png"] = syntax_figure(relations)
    if examples := content.get("examples"):
        pages["heads_attention.png"] = attention_figure(examples[0])
    return {name: saved(page, "png", DOTS_PER_INCH) for name, page in pages.items()}


def _panels(found: Mapping[str, Sequence[Sequence[Any]]], title: str) -> tuple[Figure, list[Axes]]:
    """A panel for each site, wide enough for its heads and high enough for its layers."""
    widths = [max(map(len, layers)) * CELL + AROUND for layers in found.values()]
    height = max(map(len, found.values())) * CELL + AROUND
    page = Figure(figsize=(sum(widths) + 0.6, height + 0.6), layout="constrained")
    page.suptitle(title, fontsize=11)
    panels = page.subplots(1, len(found), width_ratios=widths, squeeze=False)[0]
    for panel, (site, layers) in zip(panels, found.items(), strict=True):
        panel.set_title(SITE_NAMES[site], fontsize=10)
        panel.set_xticks(range(max(map(len, layers))))
        panel.set_yticks(range(len(layers)))
        panel.set_xlabel("head")
        panel.set_ylabel("layer")
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    return page, list(panels)


def measure_figure(about: shown.About, found: Mapping[str, Any]) -> Figure:
    """Heat maps of one measure."""
    page, panels = _panels(found, about.title)
    scale = shown.scale_of(found, about.bounded)
    for panel, layers in zip(panels, found.values(), strict=True):
        panel.imshow(
            np.array(list(zip_longest(*layers)), dtype=float).T, cmap=shown.COLOURS, norm=scale
        )
        for i, layer in enumerate(layers):
            for j, value in enumerate(layer):
                if value is not None:
                    letters = shown.PALETTE[shown.shade(scale, value)][1]
                    panel.text(j, i, num(value, about.spec), **CENTRED, color=letters, size=7)
    colours = ScalarMappable(scale, shown.COLOURS)
    page.colorbar(colours, ax=panels, shrink=0.8)
    return page


def role_figure(found: Mapping[str, Sequence[Sequence[Sequence[str]]]]) -> Figure:
    """Which head has which kinds of roles: a cell is shared by the kinds of its head."""
    page, panels = _panels(found, "Roles of heads")
    for panel, layers in zip(panels, found.values(), strict=True):
        for i, layer in enumerate(layers):
            for j, names in enumerate(layer):
                _role_cell(panel, i, j, sorted({shown.kind_of(name) for name in names}))
        panel.set_xlim(-0.5, max(map(len, layers)) - 0.5)
        panel.set_ylim(len(layers) - 0.5, -0.5)
        panel.set_aspect("equal")
    patches = [Patch(color=colour, label=f"{kind[0]}: {kind}") for kind, colour in ROLES.items()]
    page.set_figheight(page.get_figheight() + 0.4)
    page.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8)
    return page


def _role_cell(panel: Axes, layer: int, head: int, kinds: Sequence[str]) -> None:
    for part, kind in enumerate(kinds or [""]):
        colour = ROLES.get(kind, OTHER) if kind else NO_ROLE
        width = 1 / max(len(kinds), 1)
        left = head - 0.5 + part * width
        panel.bar(left, 1, width, layer - 0.5, align="edge", color=colour, edgecolor="#999999")
        panel.text(left + width / 2, layer, kind[:1], **CENTRED, size=8)


def syntax_figure(relations: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Accuracy of the best head and of the best fixed position, by relation and direction."""
    results = [
        (f"{relation} {shown.arrows(direction)}", best[0], result["baseline"]["accuracy"])
        for relation, directions in relations.items()
        for direction, result in directions.items()
        if (best := shown.best_head(result)) and result.get("baseline")
    ]
    page = Figure(figsize=(6.4, 0.35 * len(results) + 1.2), layout="constrained")
    axes = page.add_subplot()
    at = np.arange(len(results))
    heads, positions = [r[1] for r in results], [r[2] for r in results]
    axes.hlines(at, positions, heads, color="#bbbbbb", zorder=1)
    axes.scatter(heads, at, marker="o", color=BLUE, label="best head")
    axes.scatter(positions, at, marker="s", color=VERMILION, label="best fixed position")
    axes.set_yticks(at, [r[0] for r in results])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("accuracy")
    axes.grid(axis="x", alpha=0.25)
    page.legend(loc="outside upper center", ncols=2, frameon=False)
    return page


def attention_figure(example: Mapping[str, Any]) -> Figure:
    """Of each site the head that is most confident on the sentence."""
    found = shown.sites_in(example["weights"])
    page = Figure(figsize=(4.6 * len(found), 5.2), layout="constrained")
    panels = page.subplots(1, len(found), squeeze=False)[0]
    for panel, (site, layers) in zip(panels, found.items(), strict=True):
        rows, columns = shown.labels(example, site)
        layer, head = shown.confident(layers, rows, columns)
        panel.imshow(np.array(layers[layer][head]), cmap=shown.COLOURS, vmin=0, vmax=1)
        # A dollar sign would start a formula.
        panel.set_xticks(range(len(columns)), _plain(columns), rotation=90, fontsize=7)
        panel.set_yticks(range(len(rows)), _plain(rows), fontsize=7)
        panel.set_title(f"{SITE_NAMES[site]}, layer {layer}, head {head}", fontsize=9)
    return page


def _plain(tokens: Sequence[str]) -> list[str]:
    return [token.replace("$", r"\$") for token in tokens]
