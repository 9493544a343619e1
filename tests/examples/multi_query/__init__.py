"""Multi-query attention (Shazeer 2019, arXiv 1911.02150, section 3): a variant in one file.

    head_i = softmax(h^-0.5 (x Wq_i^T + bq_i)(y Wk^T + bk)^T)(y Wv^T + bv)

Queries are per head; one key and one value serve all heads, so that a decoder caches ``2 h``
numbers a token in place of ``2 d``.

Shapes: ``H`` heads of size ``h = d/H``; ``Wq_i, Wk, Wv (h, d)``, ``Wo (d, d)``; ``B`` sentences,
``T`` queries, ``S`` keys.

Given to fairseq's commands as ``--user-dir tests/examples/multi_query``, it registers
``--arch transformer_multi_query``, ``..._iwslt_de_en``, ``..._wmt_en_de``, ``..._multi30k``, and
everything of this package beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairseq.models.transformer import TransformerConfig
from torch import Tensor

from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.checks import even_head_size
from fairseq_collab.attention.heads import linear, split_heads
from fairseq_collab.attention.init import init_output, init_projection
from fairseq_collab.attention.signature import Signature
from fairseq_collab.models.base import Variant, register
from fairseq_collab.models.layers import Site
from fairseq_collab.models.translation import TRANSLATION


@dataclass(frozen=True)
class MultiQuerySignature(Signature):
    kind = 100

    heads: int


class MultiQueryAttention(HeadAttention):
    """``H`` heads with queries of their own, and one key and one value for all of them.

    Raises:
        ValueError: ``d/H`` is not whole.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        **options: Any,
    ):
        super().__init__(embed_dim, **options)
        self.num_heads = num_heads
        self.v_head_size = even_head_size(embed_dim, num_heads)
        self.q_proj = linear(embed_dim, embed_dim)
        self.k_proj = linear(kdim or embed_dim, self.v_head_size)
        self.v_proj = linear(vdim or embed_dim, self.v_head_size)
        self.out_proj = linear(embed_dim, embed_dim)
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            init_projection(projection, same_dims=True)
        init_output(self.out_proj)
        self.register_signature()

    def project_query(self, x: Tensor) -> Tensor:
        return split_heads(self.q_proj(x) * self.v_head_size**-0.5, self.num_heads)  # (B, H, T, h)

    def project_key(self, y: Tensor) -> Tensor:
        return split_heads(self.k_proj(y), 1)  # (B, 1, S, h)

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(y), 1)  # (B, 1, S, h)

    def describe(self) -> Signature:
        return MultiQuerySignature(self.num_heads)

    def cached_floats_per_token(self) -> tuple[int, int]:
        return self.v_head_size, self.v_head_size


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> HeadAttention:
    """The same for every site and layer."""
    return MultiQueryAttention(embed_dim, num_heads, **options)


register(Variant("multi_query", attention, families=(TRANSLATION,)))
