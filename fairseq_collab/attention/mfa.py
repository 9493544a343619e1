"""Multi-matrix factorization attention: one shared key, one shared value, a full matrix per query.

    q_i = RMSNorm(x Sq^T) Q_i,    k = y Sk^T,    v = y Sv^T,    head_i = softmax(C^-0.5 q_i k^T) v
    output = sum_i head_i O_i^T + bo

Hu et al. 2024, arXiv 2412.19255, section 3; normalisation, its epsilon and the scale are those of
Step-3's released code, with its ``share_q_dim = C``.  Without the normalisation these are shared
keys with full query mixing and one head of values (:mod:`fairseq_collab.attention.collaborative`),
all of width ``C``.  Projections have no biases.  (``bo`` is fairseq's: its layers expect one.)

Shapes:
    d  model size    H  heads    C  width of the shared key and value; H and C are free
    Sq (C, d)    Sk, Sv (C, d_y)    Q_i (C, C)    O_i (d, C)    d_y: size of the input y

A decoder caches ``2 C`` numbers per token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.attention.base import HeadAttention
from fairseq_collab.attention.building import (
    check_sizes,
    init_output,
    init_projection,
    make_linear,
    split_heads,
)
from fairseq_collab.attention.signature import Signature, labelled_field

#: Of Step-3's normalisation of queries.
EPSILON = 1e-5


@dataclass(frozen=True)
class MFASignature(Signature):
    kind = 7

    heads: int
    width: int = labelled_field("shared width")


class MFAAttention(HeadAttention):
    """``H`` heads over one key and one value of width ``C``.

    Args:
        num_heads: ``H``.
        width: ``C``.
        kdim: size of the input of keys and values, if not ``d``.

    Raises:
        ValueError: a size is not positive.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        width: int,
        *,
        kdim: int | None = None,
        **options: Any,
    ):
        super().__init__(embed_dim, **options)
        check_sizes(num_heads=num_heads, width=width)
        self.num_heads, self.v_head_size = num_heads, width
        kdim = kdim or embed_dim
        self.k_proj = make_linear(kdim, width, bias=False)
        self.v_proj = make_linear(kdim, width)
        self.q_proj = make_linear(embed_dim, width, bias=False)
        self.out_proj = make_linear(num_heads * width, embed_dim)
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            init_projection(projection, same_dims=embed_dim == kdim == width)
        init_output(self.out_proj)
        # Drawn anew, so that a seed gives the weights from which the results were trained.
        self.v_proj = make_linear(kdim, width, bias=False)
        init_projection(self.v_proj, same_dims=False)
        # Each Q_i as a projection C -> C of one stacked projection: Xavier of (H C, C).
        bound = math.sqrt(6 / (width + num_heads * width))
        self.mixing = nn.Parameter(torch.empty(num_heads, width, width).uniform_(-bound, bound))
        self.q_norm = nn.RMSNorm(width, eps=EPSILON)

    def project_query(self, x: Tensor) -> Tensor:
        mixing = self.mixing * self.v_head_size**-0.5
        # One product for all heads: (T, B, C) x (C, H C).
        q = self.q_norm(self.q_proj(x)) @ mixing.transpose(0, 1).flatten(1)
        return split_heads(q, self.num_heads)  # (B, H, T, C)

    def project_key(self, y: Tensor) -> Tensor:
        return split_heads(self.k_proj(y), 1)  # (B, 1, S, C)

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(y), 1)  # (B, 1, S, C)

    def describe(self) -> Signature:
        return MFASignature(self.num_heads, self.v_head_size)

    def cached_floats_per_token(self) -> tuple[int, int]:
        return self.v_head_size, self.v_head_size
