"""The page and the figure of ``fairseq-collab prices``, from ``prices.json``.

prices.md     price of a quarter of each attention's size, of a rounded KV cache, of each head
prices.svg    a panel per attention: price against size, heads as bars
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from collab_common.files import write_contents
from collab_lab.results.figure import GREY, saved, styled, styles
from collab_lab.results.render import TYPE_NAMES, grid, num
from fairseq_collab.attention.rounding import BITS

Content = Mapping[str, Any]
NAME, FIGURE = "prices.md", "prices.svg"
#: Kinds of heads by what they are called in ``prices.json``, with the name of their sizes.
KINDS = {
    "latent": ("latent", "r"),
    "own": ("shared key, own queries", "K"),
    "grouped-query": ("grouped query", "G"),
}
#: Inches of a panel; panels in a row; the lowest price that is drawn, in bits.
PANEL, ACROSS, LEAST = (2.8, 2.1), 3, 1e-4


def write(content: Content, out: Path) -> None:
    """Write the page and the figure, each file atomically."""
    text = (
        f"# Prices of {Path(content['checkpoint']).name}\n\n{summary(content)}\n\n![]({FIGURE})\n"
    )
    write_contents(out, {NAME: text, FIGURE: saved(figure(content), "svg")})


def summary(content: Content) -> str:
    """A row per attention: kinds at a quarter of their size, bits, heads; then measured losses."""
    kinds = [kind for kind in KINDS if any(kind in one["sizes"] for one in content["attentions"])]
    rounded = [f"{bits}-bit KV cache" for bits in BITS]
    titles = ["attention", *(f"{KINDS[kind][0]} {KINDS[kind][1]}/4" for kind in kinds)]
    rows = [
        [
            name_of(one),
            *(num(_price_at(one["sizes"].get(kind), 1 / 4), ".4f") for kind in kinds),
            *(num(_price_at(one.get(f"{bits} bits", {}).get("headsize")), ".4f") for bits in BITS),
            num(min(one["heads"], default=None), ".4f"),
            num(max(one["heads"], default=None), ".4f"),
        ]
        for one in content["attentions"]
    ]
    lines = [
        f"Expected rise of the loss in bits per target token, from {content['sentences']} "
        f"sentences of {content['subset']}, {content['seconds']:.0f} seconds:\n",
        grid([*titles, *rounded, "cheapest head", "most expensive head"], rows),
    ]
    if content["checks"]:
        checks = [
            [one["change"], num(one["price"], ".4f"), num(one["measured"], ".4f")]
            for one in content["checks"]
        ]
        lines.append(f"\nBits lost on the validation set ({content['valid_bits']:.4f} before):\n")
        lines.append(grid(["change", "predicted", "measured"], checks))
    return "\n".join(lines)


def name_of(one: Content) -> str:
    """``cross-attention 1``."""
    return f"{TYPE_NAMES[one['type']]} {one['layer']}"


def _price_at(points: Any, share: float = 1) -> float | None:
    """The price at the largest size of at most this share of all."""
    if not points:
        return None
    fitting = [one for one in points if one["size"] <= share * points[-1]["size"]]
    return fitting[-1]["price"] if fitting else None


@styled
def figure(content: Content) -> Figure:
    """All attentions, in equal scales."""
    found = content["attentions"]
    down = -(-len(found) // ACROSS)
    page = Figure(figsize=(PANEL[0] * ACROSS, PANEL[1] * down + 0.4), layout="constrained")
    panels = list(page.subplots(down, ACROSS, sharey=True, squeeze=False).flat)
    for panel, one in zip(panels, found, strict=False):
        _draw(panel, one)
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    page.supxlabel("share of the size that is exact; heads: each by itself")
    page.supylabel("price (bits per target token)")
    handles, labels = page.axes[0].get_legend_handles_labels()
    page.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return page


def _draw(panel: Axes, one: Content) -> None:
    panel.set_title(name_of(one), fontsize=9)
    panel.set_yscale("log")
    panel.set_ylim(bottom=LEAST)
    panel.set_xlim(0, 1)
    labels = [label for label, _ in KINDS.values()]
    for kind, label, (colour, mark, _) in zip(KINDS, labels, styles(labels), strict=True):
        points = [point for point in one["sizes"].get(kind, []) if point["price"] > LEAST]
        if points:
            whole = one["sizes"][kind][-1]["size"]
            shares, prices = zip(*((p["size"] / whole, p["price"]) for p in points), strict=True)
            panel.plot(shares, prices, color=colour, marker=mark, markersize=4, label=label)
    heads = one["heads"]
    if heads:
        places = [(i + 0.5) / len(heads) for i in range(len(heads))]
        panel.bar(places, sorted(heads), 0.6 / len(heads), color=GREY, alpha=0.3, label="heads")
    panel.tick_params(labelsize=8)
