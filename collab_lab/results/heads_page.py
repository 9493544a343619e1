"""The page and the figure of ``fairseq-collab heads``, from ``heads.json``.

heads.md              the page, with one row for each head
heads.svg, heads.pdf  all heads, with their prices as colours and their roles

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

from collab_lab.results.figure import saved, styled
from collab_lab.results.render import TYPE_NAMES, grid, num

Content = Mapping[str, Any]
#: What the page says of each measure.
MEASURES = {
    "price": "expected loss in bits per target token without the head, once the output projection "
    "makes up for what the other heads can (optimal brain surgeon on heads, as in ZipLM: Kurtic et "
    "al. 2023, arXiv 2302.04089). Prices of single heads do not add up in an attention",
    "importance": "change of the loss if the head faded, |Att(x) dL/dAtt(x)|, in nats per token "
    "(Michel et al. 2019, arXiv 1905.10650, section 4.1), before the paper's norm over a layer",
    "confidence": "mean over words of the largest weight that the head gives to a word (Voita et "
    "al. 2019, arXiv 1905.09418, section 4)",
    "positional": "share of words at which the largest weight is on the head's best relative "
    "position; a head is positional from 0.9 on (section 5.1)",
    "rare": "share of sentences in which one of the two rarest tokens gets most of the weight; "
    "sentences count if that token is not a frequent one (section 5.3); a dictionary that both "
    "languages share counts both",
    "relevance": "the head's share in the logit of the most likely word, by layer-wise relevance "
    "propagation; below 0 it speaks against the prediction (section 4)",
}
#: Measures that are small; others have two decimals.
SMALL = ("price", "importance")
#: Measures from 0 to 1 that say what a head does: the figure names the highest.
SHARES = ("confidence", "positional", "rare")
#: Inches of a cell, and around a panel; the lowest price that has a colour, in bits.
CELL, AROUND, LEAST = (0.95, 0.55), 0.6, 1e-4
#: Even in lightness, for readers with any colour vision; black letters from this share on.
COLOURS, BRIGHT = "viridis", 0.44


def files(content: Content) -> dict[str, bytes | str]:
    """The page and the figure, by file name."""
    drawn = figure(content)
    return {"heads.md": page(content)} | {
        f"heads.{form}": saved(drawn, form) for form in ("svg", "pdf")
    }


def page(content: Content) -> str:
    """The content of ``heads.md``."""
    number, rare = sum(map(sum, content["heads"].values())), content["rare"]
    read = {name: content[name]["sentences"] for name in ("rare", "price", "relevance", "syntax")
            if name in content}  # fmt: skip
    parts = [
        f"# Heads of {content['checkpoint']}",
        f"{content['arch']} with {number} heads, on {content['sentences']:,} sentences of "
        f"{content['data']}, {content['subset']}. `cross 1.2` is head 2 of layer 1 of "
        "cross-attention, both counted from 0, as in `collab_lab.prune(retained=...)`. All "
        "numbers, and how they were measured, are in heads.json.",
        "![Price of each head, and what it does](heads.svg)",
        grid(["head", *MEASURES, "roles"], rows(content), left=(0, 7)),
        "\n".join(f"- **{name}**: {text}" for name, text in MEASURES.items()),
        f"Sentences: {', '.join(f'{name} {n:,}' for name, n in read.items())}. Rare tokens by "
        f"chance: {num(rare['chance'], '.2f')}.",
    ]
    if relations := best_heads(content):
        syntax = content["syntax"]
        titles = ["relation", "pairs", "layer.head", "accuracy", "fixed position", "offset"]
        parts += [
            "## Syntax",
            f"Trees of {syntax['trees']}; {syntax['too_long']:,} are too long. The best head and "
            "the best fixed position; a head has the role if its accuracy is at least 1.1 times "
            "that of the position (Voita et al. 2019, section 5.2).",
            grid(titles, relations),
        ]
    return "\n\n".join(parts) + "\n"


def rows(content: Content) -> list[list[str]]:
    """One row for each head with its measures and roles, lowest price first."""
    found: list[tuple[Any, list[str]]] = []
    for type_, layers in content["heads"].items():
        for i, j in ((i, j) for i, heads in enumerate(layers) for j in range(heads)):
            values = {name: value_of(content, name, type_, i, j) for name in MEASURES}
            cells = [num(x, ".4f" if name in SMALL else ".2f") for name, x in values.items()]
            roles = ", ".join(content["roles"][type_][i][j])
            found.append((values["price"], [f"{type_} {i}.{j}", *cells, roles or "-"]))
    return [cells for _, cells in sorted(found, key=lambda row: row[0])]


def value_of(content: Content, name: str, type_: str, layer: int, head: int) -> float | None:
    """A measure of a head; None if it does not apply or was not measured."""
    layers = (content["measures"].get(name) or {}).get(type_)
    return layers[layer][head] if layers else None


@styled
def figure(content: Content) -> Figure:
    """Draw a panel for each attention type, layers by heads, with each head's price and role."""
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
    """The first role of a head or, if it has none, its highest measure."""
    if roles := content["roles"][type_][layer][head]:
        return re.sub(r"^syntactic (\S+).*", r"\1", roles[0])
    found = {name: value_of(content, name, type_, layer, head) for name in SHARES}
    known = {name: value for name, value in found.items() if value is not None}
    name = max(known, key=lambda one: known[one], default="")
    return name and f"{name} {known[name]:.2f}"


def best_heads(content: Content) -> list[list[str]]:
    """One row for each relation and direction that has pairs: its best head, and the baseline."""
    found = []
    for relation, directions in (content.get("syntax") or {}).get("relations", {}).items():
        for direction, one in directions.items():
            heads = [(accuracy, f"{i}.{j}") for i, layer in enumerate(one["encoder"])
                     for j, accuracy in enumerate(layer)]  # fmt: skip
            if one["pairs"]:
                accuracy, name = max(heads, key=lambda head: head[0])
                base, offset = one["baseline"]["accuracy"], one["baseline"]["offset"]
                found.append([f"{relation} {direction}", num(one["pairs"]), name,
                              num(accuracy, ".2f"), num(base, ".2f"), f"{offset:+d}"])  # fmt: skip
    return found
