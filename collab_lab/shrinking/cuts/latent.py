"""Latent heads: all keys and values are computed from one cached vector per token."""

from __future__ import annotations

from collab_lab.mathematics.new_heads import PricedWeights, own_latent
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import STEPS
from collab_lab.shrinking.cut import NewHeads
from collab_lab.shrinking.shape import LATENTS


class Latent(NewHeads):
    """Give each attention a latent of its own."""

    name = "latent"
    kind = LATENTS

    def convert(self, attention: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        return own_latent(attention, size, steps)
