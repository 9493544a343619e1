"""Shared keys: all heads of an attention read one key, narrower than their keys together."""

from __future__ import annotations

from collab_lab.mathematics.new_heads import PricedWeights, shared_keys
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import STEPS
from collab_lab.shrinking import shape as shapes
from collab_lab.shrinking.cut import NewHeads
from collab_lab.shrinking.shape import Shape, Site


class SharedKey(NewHeads):
    """Give all heads of an attention one shared key.

    Args:
        query_mixing: how each head makes its query: ``own``, ``full`` or ``diagonal``.
    """

    name = "collab"

    def __init__(self, query_mixing: str = "own"):
        self.query_mixing, self.kind = query_mixing, shapes.shared_keys_kind(query_mixing)

    def fits(self, site: Site, shape: Shape) -> bool:
        return shape.size < len(shape.heads) * shapes.key_value_sizes(site.module)[0]

    def convert(self, attention: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        weights, price = shared_keys(attention, size, self.query_mixing, steps)
        return weights | attention.copied("v_proj", "out_proj"), price
