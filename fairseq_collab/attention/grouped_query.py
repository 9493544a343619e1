"""Heads of queries that share fewer heads of keys and values (Shazeer 2019; Ainslie et al. 2023).

    head_i = softmax(h^-0.5 (x Wq_i^T + bq_i)(y Wk_g^T + bk_g)^T)(y Wv_g^T + bv_g),   g = i G // H

Shazeer (arXiv 1911.02150, section 3) has G = 1, multi-query attention; Ainslie et al. (arXiv
2305.13245, section 2.2) any G that divides H, grouped-query attention.  G = H is the standard
transformer.  A decoder caches ``2 G h`` numbers a token in place of ``2 d``.

Shapes:
    d  model size    H  heads of queries    G  heads of keys and values    h = d/H
    Wq_i (h, d)    Wk_g, Wv_g (h, d_y)    d_y  size of the input y of keys and values
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
        num_heads: ``H``, which divides ``d``.
        key_value_heads: ``G``, which divides ``H``.
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
        kdim: int | None = None,
        **options: Any,
    ):
        super().__init__(embed_dim, **options)
        check_sizes(num_heads=num_heads, key_value_heads=key_value_heads)
        check_shared_evenly(num_heads, key_value_heads, "key/value heads")
        self.num_heads, self.key_value_heads = num_heads, key_value_heads
        self.v_head_size = head_size(None, embed_dim, num_heads)
        # In fairseq's order: at G = H a seed gives fairseq's weights.
        kdim = kdim or embed_dim
        self.k_proj = make_linear(kdim, key_value_heads * self.v_head_size)
        self.v_proj = make_linear(kdim, key_value_heads * self.v_head_size)
        self.q_proj = make_linear(embed_dim, embed_dim)
        self.out_proj = make_linear(embed_dim, embed_dim)
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            init_projection(projection, same_dims=kdim == embed_dim)
        init_output(self.out_proj)

    def project_query(self, x: Tensor) -> Tensor:
        return split_heads(self.q_proj(x) * self.v_head_size**-0.5, self.num_heads)  # (B, H, T, h)

    def project_key(self, y: Tensor) -> Tensor:
        return split_heads(self.k_proj(y), self.key_value_heads)  # (B, G, S, h)

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(y), self.key_value_heads)  # (B, G, S, h)

    def cached_floats_per_token(self) -> tuple[int, int]:
        cached = self.key_value_heads * self.v_head_size
        return cached, cached
