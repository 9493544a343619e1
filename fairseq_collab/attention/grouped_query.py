"""Heads of queries that share fewer heads of keys and values (Shazeer 2019; Ainslie et al. 2023).

    head_i = softmax(h_qk^-0.5 (x Wq_i^T + bq_i)(y Wk_g^T + bk_g)^T)(y Wv_g^T + bv_g),  g = i G // H

Shazeer (arXiv 1911.02150, section 3) has G = 1, multi-query attention; Ainslie et al. (arXiv
2305.13245, section 2.2) any G that divides H, grouped-query attention.  G = H is the standard
transformer.  A decoder caches ``G (h_qk + h_v)`` numbers a token in place of ``2 d``.

Shapes:
    d  model size    H  heads of queries    G  heads of keys and values    h_qk, h_v  d/H, or given
    Wq_i (h_qk, d)    Wk_g (h_qk, d_y)    Wv_g (h_v, d_y)    d_y  size of the input y
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fairseq_collab.attention.base import HeadAttention
from fairseq_collab.attention.building import (
    check_shared_evenly,
    check_sizes,
    head_size,
    init_output,
    init_projection,
    make_linear,
    split_heads,
)
from fairseq_collab.attention.signature import Signature, labelled_field


@dataclass(frozen=True)
class GroupedQuerySignature(Signature):
    kind = 5

    num_heads: int = labelled_field("heads")
    key_value_heads: int = labelled_field("key/value heads")


class GroupedQueryAttention(HeadAttention):
    """``H`` heads of queries over ``G`` heads of keys and values.

    Args:
        num_heads: ``H``; must divide ``d`` unless both sizes are given.
        key_value_heads: ``G``, which divides ``H``.
        qk_head_size: ``h_qk``, size of a head's query and key; ``d/H`` unless given.
        v_head_size: ``h_v``, size of a head's value; ``d/H`` unless given.
        kdim: size of the input of keys and values, if not ``d``.

    Raises:
        ValueError: a number is not positive or does not divide.
    """

    signature_type = GroupedQuerySignature

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_value_heads: int,
        *,
        qk_head_size: int | None = None,
        v_head_size: int | None = None,
        kdim: int | None = None,
        **options: Any,
    ):
        super().__init__(embed_dim, **options)
        check_sizes(num_heads=num_heads, key_value_heads=key_value_heads)
        check_shared_evenly(num_heads, key_value_heads, "key/value heads")
        self.num_heads, self.key_value_heads = num_heads, key_value_heads
        qk_head_size = head_size(qk_head_size, embed_dim, num_heads)
        v_head_size = head_size(v_head_size, embed_dim, num_heads)
        self.qk_head_size, self.v_head_size = qk_head_size, v_head_size
        self.scaling = qk_head_size**-0.5
        # In fairseq's order: at G = H a seed gives fairseq's weights.
        kdim = kdim or embed_dim
        self.k_proj = make_linear(kdim, key_value_heads * qk_head_size)
        self.v_proj = make_linear(kdim, key_value_heads * v_head_size)
        self.q_proj = make_linear(embed_dim, num_heads * qk_head_size)
        self.out_proj = make_linear(num_heads * v_head_size, embed_dim)
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            init_projection(projection, small=kdim == embed_dim)
        init_output(self.out_proj)

    def project_query(self, x: Tensor) -> Tensor:
        return split_heads(self.q_proj(x) * self.scaling, self.num_heads)  # (B, H, T, h_qk)

    def project_key(self, y: Tensor) -> Tensor:
        return split_heads(self.k_proj(y), self.key_value_heads)  # (B, G, S, h_qk)

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(y), self.key_value_heads)  # (B, G, S, h_v)

    def cached_floats_per_token(self) -> tuple[int, int]:
        return self.key_value_heads * self.qk_head_size, self.key_value_heads * self.v_head_size
