"""Grouped-query heads that share the mean of their keys and of their values.

Ainslie et al. 2023 (arXiv 2305.13245) start the training of grouped-query models so.
"""

from __future__ import annotations

from collab_lab.mathematics.new_heads import PricedWeights, grouped_heads
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery


class Pooled(GroupedQuery):
    """Groups of neighbours: what their sizes cost is inherited, and that heads divide by them."""

    name = "pooled"

    def convert(self, attention: PricedAttention, size: int, steps: int = 0) -> PricedWeights:
        """The weights of an attention with ``size`` heads of keys and values, and their price."""
        maps = attention.maps
        keys, values = (
            of_heads.unflatten(0, (size, -1)).mean(1)  # (G, d_y, h)
            for of_heads in (maps.keys, maps.values[:, :-1])
        )
        return grouped_heads(attention, maps.queries, keys, values, maps.out)
