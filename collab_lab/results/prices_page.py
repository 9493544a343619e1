"""What ``fairseq-collab prices`` prints, from ``prices.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collab_lab.results.render import TYPE_NAMES, grid, num
from fairseq_collab.attention.rounding import BITS

Content = Mapping[str, Any]
#: Kinds of heads in ``prices.json``, and the titles of their columns.
KINDS = {
    "latent": "latent r/4",
    "own": "shared key, own queries K/4",
    "grouped-query": "grouped query G/4",
}


def summary(content: Content) -> str:
    """A row per attention: kinds at a quarter of their size, bits, heads; then measured losses."""
    kinds = [kind for kind in KINDS if any(kind in one["sizes"] for one in content["attentions"])]
    rounded = [f"{bits}-bit KV cache" for bits in BITS]
    titles = ["attention", *(KINDS[kind] for kind in kinds)]
    rows = [
        [
            f"{TYPE_NAMES[one['type']]} {one['layer']}",
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


def _price_at(points: Any, share: float = 1) -> float | None:
    """The price at the largest size of at most this share of all."""
    if not points:
        return None
    fitting = [one for one in points if one["size"] <= share * points[-1]["size"]]
    return fitting[-1]["price"] if fitting else None
