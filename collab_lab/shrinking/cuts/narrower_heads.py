"""Narrower separate keys: each head keeps the directions of its keys that matter most."""

from __future__ import annotations

from typing import Any

from collab_lab.mathematics.new_heads import PricedWeights, narrower_keys
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import STEPS
from collab_lab.shrinking.cut import NewHeads
from collab_lab.shrinking.shape import NARROWER_KEYS


class NarrowerHeads(NewHeads):
    """Give all heads of a model one smaller size of queries and keys.

    It offers only the present size to a search, because another size would have to hold in all
    attentions at once.
    """

    name = "separate"
    kind = NARROWER_KEYS
    standard_sized = ("values",)
    any_heads = False

    def grid(self, module: Any) -> list[int]:
        return [self.exact_size(module)]

    def out_of_range(self, module: Any, size: int) -> str | None:
        if size % module.num_heads:
            return f"give a multiple of its {module.num_heads} heads"
        return super().out_of_range(module, size)

    def convert(self, attention: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        return narrower_keys(attention, size)
