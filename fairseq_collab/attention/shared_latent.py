"""Latent heads whose attentions all read one latent of one source: one cache for all layers.

Every cross-attention of a decoder reads the same encoder output y:

    c = y C^T + bc  for all layers,      k_i = c Uk_i^T,  v_i = c Uv_i^T  in each

so a latent (:mod:`fairseq_collab.attention.latent`) has to be cached once, not once a layer: ``r``
numbers a source token, for ``2 L d`` of standard heads in L layers.  With ``r = d_y`` there is no
``C``: the latent is y itself, which contains every key and every value.

The first of the attentions owns the cache: it writes it (in a step, the first one that is called),
and moves it when sentences leave the batch.  The others read it.

Shapes:
    y  (S, B, d_y)      C  (r, d_y)      L  layers
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fairseq_collab.attention.cache import IncrementalState
from fairseq_collab.attention.latent import LatentAttention, LatentSignature


@dataclass(frozen=True)
class SharedLatentSignature(LatentSignature):
    kind = 7


class SharedLatentAttention(LatentAttention):
    """Heads of :class:`LatentAttention` that can share their latent with other attentions.

    Args:
        latent_dim: ``r``; with ``d_y``, the latent is the source itself, and there is no
            projection.
    """

    signature_type = SharedLatentSignature

    def __init__(self, embed_dim: int, num_heads: int, latent_dim: int, **options: Any):
        super().__init__(embed_dim, num_heads, latent_dim, **options)
        if latent_dim == self.kdim:
            self.latent_proj = nn.Identity()
        #: Whether this attention keeps the cache for all attentions that share.
        self.keeps_cache = True

    def share(self, owner: SharedLatentAttention) -> None:
        """Read the latent of ``owner``, which has the same width and input, and its cache."""
        self.latent_proj, self.latent_norm = owner.latent_proj, owner.latent_norm
        self._state_key, self.keeps_cache = owner._state_key, self is owner

    def cached_floats_per_token(self) -> tuple[int, int]:
        """Return the numbers that the owner caches; the other attentions cache none."""
        return (self.latent_dim, 0) if self.keeps_cache else (0, 0)

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Move the cache if this attention owns it; the others read the owner's."""
        if not self.keeps_cache:
            return incremental_state
        return super().reorder_incremental_state(incremental_state, new_order)
