"""Heads whose keys are their values (Zadouri et al. 2025, arXiv 2505.21487): a variant in one file.

    head_i = softmax(h^-0.5 (x Wq_i^T + bq_i) k_i^T) k_i,      k_i = y Wk_i^T + bk_i

Each head weighs what it scores: a decoder caches ``d`` numbers a token in place of ``2 d``.  It is
the paper's grouped-tied attention with as many groups as heads, and without its rotary part.

Shapes: ``H`` heads of size ``h = d/H``; ``Wq_i, Wk_i (h, d)``, ``Wo (d, d)``; ``B`` sentences,
``T`` queries, ``S`` keys.

Given to fairseq's commands as ``--user-dir tests/examples/tied_heads``, it registers
``--arch transformer_tied_heads``, ``..._iwslt_de_en``, ``..._wmt_en_de``, ``..._multi30k``, and
everything of this package beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairseq.models.transformer import TransformerConfig
from torch import Tensor

from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.building import (
    head_size,
    init_output,
    init_projection,
    make_linear,
    split_heads,
)
from fairseq_collab.attention.signature import Signature
from fairseq_collab.models.base import Variant, register
from fairseq_collab.models.families import TRANSLATION
from fairseq_collab.models.options import Site


@dataclass(frozen=True)
class TiedSignature(Signature):
    kind = 100

    num_heads: int


class TiedAttention(HeadAttention):
    """``H`` heads, each with one projection for its keys and values.

    Raises:
        ValueError: ``d/H`` is not whole.
    """

    signature_type = TiedSignature

    def __init__(self, embed_dim: int, num_heads: int, *, kdim: int | None = None, **options: Any):
        super().__init__(embed_dim, **options)
        self.num_heads = num_heads
        self.v_head_size = head_size(None, embed_dim, num_heads)
        self.q_proj = make_linear(embed_dim, embed_dim)
        self.k_proj = make_linear(kdim or embed_dim, embed_dim)
        self.out_proj = make_linear(embed_dim, embed_dim)
        for projection in (self.q_proj, self.k_proj):
            init_projection(projection, small=True)
        init_output(self.out_proj)

    def project_query(self, x: Tensor) -> Tensor:
        return split_heads(self.q_proj(x) * self.v_head_size**-0.5, self.num_heads)  # (B, H, T, h)

    def project_key(self, y: Tensor) -> Tensor:
        return split_heads(self.k_proj(y), self.num_heads)  # (B, H, S, h)

    project_value = project_key

    def project_both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        tied = self.project_key(y)
        return tied, tied  # one tensor: the cache keeps it once

    def cached_floats_per_token(self) -> tuple[int, int]:
        return self.embed_dim, 0


def attention(cfg: TransformerConfig, site: Site) -> HeadAttention:
    """The heads of one site."""
    return TiedAttention(site.embed_dim, site.num_heads, kdim=site.kdim)


register(Variant("tied_heads", attention, families=(TRANSLATION,)))
