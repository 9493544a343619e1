"""Keys and values of all heads from one latent vector a token (DeepSeek-V2, arXiv 2405.04434).

    c = y C^T + bc,      head_i = softmax(scale (x Wq_i^T + bq_i)(c Uk_i^T)^T) (c Uv_i^T)

This is section 2.1.2, equations 9 to 11, "low-rank key-value joint compression", with full queries
and without the rotary part: positions here are in the inputs.  Without the normalisation of the
paper's models, ``r = 2 d`` with ``C = [Wk; Wv]`` is standard attention; with it (``normalise``),

    c = w * c' / sqrt(mean(c'^2) + 1e-6),      c' = y C^T + bc.

(The softmax would ignore a bias of ``Uk_i``; one of ``Uv_i`` is part of the output's.)

Shapes:
    d  model size    H  heads    r  latent size    h_qk, h_v  head sizes
    C  (r, d_y)      w  (r)      Wq_i  (h_qk, d)      Uk_i  (h_qk, r)      Uv_i  (h_v, r)

**Two forms of one function.**  The *expanded* form makes keys and values of the latents.  The
*absorbed* form moves ``Uk_i`` into the query and ``Uv_i`` into the output, and all heads attend to
the latents themselves (``q_i (c Uk_i^T)^T = (q_i Uk_i) c^T``).  Decoding uses the absorbed form: it
caches ``r`` numbers per token, and does not make keys and values of the whole past at every step.
Training uses the expanded form: scores and outputs of a head take ``h_qk + h_v`` multiply-adds per
query and key there, ``2 r`` if absorbed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.attention.base import HeadAttention
from fairseq_collab.attention.building import (
    SCALES,
    check_sizes,
    dequantized,
    head_size,
    init_output,
    init_projection,
    make_linear,
    merge_heads,
    scaling,
    split_heads,
)
from fairseq_collab.attention.cache import as_cached
from fairseq_collab.attention.signature import Signature, choice_field, labelled_field


@dataclass(frozen=True)
class LatentSignature(Signature):
    kind = 6

    num_heads: int = labelled_field("heads")
    latent_dim: int = labelled_field("latent dimension")
    qk_head_size: int = labelled_field("query/key head size")
    v_head_size: int = labelled_field("value head size")
    scale: str = choice_field("scale", SCALES)


class LatentAttention(HeadAttention):
    """``H`` heads whose keys and values all come from one latent of size ``r``.

    Args:
        num_heads: ``H``, at least 1.
        latent_dim: ``r``.
        qk_head_size: ``h_qk``, size of a head's query and key; ``d/H`` unless given.
        v_head_size: ``h_v``, size of a head's value; ``d/H`` unless given.
        kdim: size of the input of keys and values, if not ``d``.
        scale: ``key`` for ``h_qk^-0.5``, ``embed`` for ``(d/H)^-0.5``.
        normalise: divide the latent by its root mean square.

    Raises:
        ValueError: a size is not positive, ``d/H`` is asked for but is not whole, or an unknown
            scale.
    """

    signature_type = LatentSignature
    has_latent = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        latent_dim: int,
        *,
        qk_head_size: int | None = None,
        v_head_size: int | None = None,
        kdim: int | None = None,
        scale: str = "key",
        normalise: bool = False,
        **options: Any,
    ):
        super().__init__(embed_dim, **options)
        check_sizes(num_heads=num_heads, latent_dim=latent_dim)
        qk_head_size = head_size(qk_head_size, embed_dim, num_heads)
        v_head_size = head_size(v_head_size, embed_dim, num_heads)
        self.num_heads, self.latent_dim = num_heads, latent_dim
        self.qk_head_size, self.v_head_size = qk_head_size, v_head_size
        self.scale = scale
        self.scaling = scaling(scale, embed_dim, num_heads, qk_head_size)
        self._kdim = kdim or embed_dim
        self.latent_proj: nn.Module = make_linear(self._kdim, latent_dim)
        self.latent_norm = nn.RMSNorm(latent_dim, eps=1e-6) if normalise else None
        self.k_proj = make_linear(latent_dim, num_heads * qk_head_size, bias=False)
        self.v_proj = make_linear(latent_dim, num_heads * v_head_size, bias=False)
        self.q_proj = make_linear(embed_dim, num_heads * qk_head_size)
        self.out_proj = make_linear(num_heads * v_head_size, embed_dim)
        init_projection(self.latent_proj, small=False)
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            init_projection(projection, small=self._kdim == embed_dim)
        init_output(self.out_proj)

    @property
    def kdim(self) -> int:
        return self._kdim

    def project_query(self, x: Tensor) -> Tensor:
        return split_heads(self.q_proj(x) * self.scaling, self.num_heads)  # (B, H, T, h_qk)

    def project_key(self, y: Tensor) -> Tensor:
        return split_heads(self.k_proj(self._latent(y)), self.num_heads)  # (B, H, S, h_qk)

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(self._latent(y)), self.num_heads)  # (B, H, S, h_v)

    def project_both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        latent = merge_heads(as_cached(self.project_latent(y), self.cache_bits))  # (S, B, r)
        k, v = self.k_proj(latent), self.v_proj(latent)
        return split_heads(k, self.num_heads), split_heads(v, self.num_heads)

    def project_latent(self, y: Tensor) -> Tensor:
        return self._latent(y).transpose(0, 1).unsqueeze(1)  # (B, 1, S, r)

    def _latent(self, y: Tensor) -> Tensor:
        latent = self.latent_proj(y)  # (S, B, r)
        return latent if self.latent_norm is None else self.latent_norm(latent)

    def absorb_keys(self, q: Tensor) -> Tensor:
        up = dequantized(self.k_proj.weight).unflatten(0, (self.num_heads, -1))  # (H, h_qk, r)
        return torch.einsum("bhte,her->bhtr", q, up)

    def absorb_values(self, heads: Tensor) -> Tensor:
        up = dequantized(self.v_proj.weight).unflatten(0, (self.num_heads, -1))  # (H, h_v, r)
        return torch.einsum("bhtr,hvr->bhtv", heads, up)

    def cached_floats_per_token(self) -> tuple[int, int]:
        return self.latent_dim, 0
