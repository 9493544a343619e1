"""Multi-matrix factorization attention: one shared key, one shared value, a full matrix per query.

    q_i = RMSNorm(x Sq^T) Q_i,    k = y Sk^T,    v = y Sv^T,    head_i = softmax(C^-0.5 q_i k^T) v
    output = sum_i head_i O_i^T + bo

Hu et al. 2024, arXiv 2412.19255, section 3; normalisation and scale are those of Step-3's released
code.  It is collaborative attention (:mod:`fairseq_collab.attention.collaborative`) with full query
mixing and one head of values, both of width ``C``; the query is normalised, and projections have no
biases.  (``bo`` is fairseq's: its layers expect one.)

Shapes:
    d  model size    H  heads    C  width of the shared key and value; H and C are free
    Sq (C, d)    Sk, Sv (C, d_y)    Q_i (C, C)    O_i (d, C)    d_y: size of the input y

A decoder caches ``2 C`` numbers per token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fairseq_collab.attention.building import linear
from fairseq_collab.attention.collaborative import CollaborativeAttention
from fairseq_collab.attention.signature import Signature, labelled


@dataclass(frozen=True)
class MFASignature(Signature):
    kind = 7

    heads: int
    width: int = labelled("shared width")


class MFAAttention(CollaborativeAttention):
    """``H`` heads over one key and one value of width ``C``.

    Args:
        num_heads: ``H``.
        width: ``C``.
        options: of :class:`CollaborativeAttention`, ``kdim`` among them.

    Raises:
        ValueError: a size is not positive.
    """

    def __init__(self, embed_dim: int, num_heads: int, width: int, **options: Any):
        super().__init__(
            embed_dim,
            num_heads,
            width,
            query_mixing="full",
            value_heads=1,
            v_head_size=width,
            bias=False,
            **options,
        )
        self.scaling = width**-0.5
        self.v_proj = linear(self.v_proj.in_features, width, bias=False)
        nn.init.xavier_uniform_(self.v_proj.weight)
        self.q_norm = nn.RMSNorm(width)
        # Each Q_i as a projection C -> C of one stacked projection: Xavier of (H C, C).
        bound = math.sqrt(6 / (width + num_heads * width))
        nn.init.uniform_(self.mixing, -bound, bound)

    def project_query(self, x: Tensor) -> Tensor:
        return self._mix(self.q_norm(self.q_proj(x)))  # (B, H, T, C)

    def describe(self) -> Signature:
        return MFASignature(self.num_heads, self.key_dim)
