"""Grouped-query heads: neighbours share the key and the value that lose least."""

from __future__ import annotations

from typing import Any

from collab_lab.mathematics.new_heads import PricedWeights, groups_of_neighbours, scale_of_groups
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import STEPS
from collab_lab.shrinking.cut import EVERY_ENGINE, NewHeads
from collab_lab.shrinking.shape import GROUPS, Shape, Site


class GroupedQuery(NewHeads):
    """Give each group of neighbouring heads one key and one value."""

    name = "grouped-query"
    kind = GROUPS
    engines = EVERY_ENGINE

    def out_of_range(self, module: Any, size: int) -> str | None:
        heads = module.num_heads
        good = [number for number in range(1, heads + 1) if heads % number == 0]
        listed = ", ".join(map(str, good))
        return None if size in good else f"give one that divides its {heads} heads: {listed}"

    def fits(self, site: Site, shape: Shape) -> bool:
        heads = len(shape.heads)
        return heads % shape.size == 0 and shape.size < heads

    def scale(self, attention: PricedAttention) -> float:
        return scale_of_groups(attention)

    def convert(self, attention: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        return groups_of_neighbours(attention, size, steps)
