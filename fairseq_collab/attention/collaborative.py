"""Collaborative heads: one query and one key projection shared by all heads, mixed by each head.

    head_i = softmax(scale (x Wq^T) diag(m_i) (y Wk^T)^T)(y Wv_i^T + bv_i)

Cordonnier, Loukas, Jaggi 2020, "Multi-head attention: collaborate instead of concatenate",
arXiv 2006.16362.  Concatenated heads are the special case ``K = d`` where ``m_i`` is one on head
i's own ``d/H`` dimensions and zero elsewhere.

Shapes: ``Wq, Wk (K, d)`` for any ``K >= 1`` (the paper's D~k), mixing ``M (H, K)`` with rows
``m_i``, ``Wv_i (d/H, d)``, ``Wo (d, d)``.

The paper's heads have values of their own, ``d`` numbers a token in a cache.  With ``value_heads``
G < H, head i has those of group ``i G // H`` in their place, ``G d/H`` numbers, as in grouped-query
attention (Ainslie et al. 2023, arXiv 2305.13245, section 2.2).

The mixing multiplies the *query*.  So there is one key ``(B, 1, S, K)`` for all heads, and the
cache of a decoder holds ``K`` numbers a token; the same product with mixed keys would cache
``H K``.

Per-head content scores ``y c_i`` (``bias="content"``) ride along as ``H`` more key dimensions, of
which head i's query picks the i-th: they are computed once a key, and cached with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_collab.attention.checks import (
    check_choice,
    check_positive,
    check_shared_evenly,
    even_head_size,
)
from fairseq_collab.attention.heads import HeadAttention
from fairseq_collab.attention.init import INITS, init_output, init_projection
from fairseq_collab.attention.memory import Maps
from fairseq_collab.attention.projections import by_head, linear, split_heads
from fairseq_collab.attention.scores import SCALES, scaling
from fairseq_collab.attention.signature import Signature, added, chosen, labelled

#: Biases: in both projections (the authors' fork), per-head content vectors (their library), none.
BIASES = ("projection", "content", "none")
#: Initial mixing: see :func:`init_mixing`.
MIXING_INITS = ("xavier", "block", "normal", "ones")


@dataclass(frozen=True)
class CollaborativeSignature(Signature):
    kind = 2

    heads: int
    key_dim: int = labelled("key dimension")
    v_head_size: int = labelled("value head size")
    scale: str = chosen("scale", SCALES)
    bias: str = chosen("bias", BIASES)
    value_heads: int = added("value heads", same_as="heads")


class CollaborativeAttention(HeadAttention):
    """``H`` heads that share one query and one key projection of size ``K``.

    Args:
        num_heads: ``H``; must divide ``d``, since values are per head and of size ``d/H``.
        key_dim: ``K``, the shared key dimension.
        value_heads: ``G``, which divides ``H``; ``H`` unless given.
        kdim, vdim: sizes of the inputs of keys and values, if not ``d``.
        mixing_init: ``xavier`` (the authors' fork), ``block`` (starts as concatenated heads of size
            ``K/H``), ``normal`` (their library), ``ones``.
        scale: ``embed`` for ``(d/H)^-0.5`` at every K (the authors' fork), ``key`` for
            ``(K/H)^-0.5`` (their library).
        bias: ``projection``, ``content`` or ``none``.
        value_init: ``constant``, or ``fork`` for gain 1/sqrt(2) at ``K = d`` only, and else 1.

    Raises:
        ValueError: a size is not positive, ``d/H`` or ``H/G`` is not whole, ``block`` mixing with
            ``K < H``, or an unknown choice.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_dim: int,
        *,
        value_heads: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        mixing_init: str = "xavier",
        scale: str = "embed",
        bias: str = "projection",
        value_init: str = "constant",
        dropout: float = 0.0,
        self_attention: bool = False,
        encoder_decoder_attention: bool = False,
    ):
        super().__init__(
            embed_dim,
            dropout=dropout,
            self_attention=self_attention,
            encoder_decoder_attention=encoder_decoder_attention,
        )
        value_heads = num_heads if value_heads is None else value_heads
        check_positive(num_heads=num_heads, key_dim=key_dim, value_heads=value_heads)
        check_shared_evenly(num_heads, value_heads, "value heads")
        check_choice("attention bias", bias, BIASES)
        check_choice("value init", value_init, INITS)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_heads = value_heads
        self.v_head_size = even_head_size(embed_dim, num_heads)
        self.scale = scale
        self.scaling = scaling(scale, embed_dim, num_heads, key_dim / num_heads)
        self.bias = bias
        kdim, vdim = kdim or embed_dim, vdim or embed_dim
        # In fairseq's order, so that one seed gives both the same weights.
        self.k_proj = linear(kdim, key_dim, bias == "projection")
        self.v_proj = linear(vdim, value_heads * self.v_head_size)
        self.q_proj = linear(embed_dim, key_dim, bias == "projection")
        self.out_proj = linear(embed_dim, embed_dim)
        self.mixing = nn.Parameter(torch.empty(num_heads, key_dim))
        if bias == "content":
            self.content_bias = nn.Parameter(torch.zeros(num_heads, kdim))

        same_dims = kdim == vdim == embed_dim
        reduced = key_dim != embed_dim
        init_projection(self.k_proj, same_dims and not reduced)
        init_projection(self.v_proj, same_dims and not (reduced and value_init == "fork"))
        init_projection(self.q_proj, same_dims and not reduced)
        init_output(self.out_proj)
        init_mixing(self.mixing, mixing_init)
        self.register_signature()

    def project_query(self, x: Tensor) -> Tensor:
        q = self.q_proj(x).transpose(0, 1).unsqueeze(1)  # (B, 1, T, K)
        mixed = q * (self.scaling * self.mixing).unsqueeze(1)  # (B, H, T, K)
        if self.bias != "content":
            return mixed
        heads = torch.eye(self.num_heads, dtype=q.dtype, device=q.device) * self.scaling
        picks = heads[None, :, None, :].expand(*mixed.shape[:3], -1)  # (B, H, T, H)
        return torch.cat([mixed, picks], dim=-1)  # (B, H, T, K + H)

    def project_key(self, y: Tensor) -> Tensor:
        k = self.k_proj(y)  # (S, B, K)
        if self.bias == "content":
            k = torch.cat([k, y @ self.content_bias.T], dim=-1)  # (S, B, K + H)
        return k.transpose(0, 1).unsqueeze(1)  # (B, 1, S, K), or K + H

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(y), self.value_heads)  # (B, G, S, d/H)

    def source_maps(self) -> Maps:
        keys = self.k_proj.weight  # (K, d_y)
        if self.bias == "content":
            keys = torch.cat([keys, self.content_bias])  # (K + H, d_y)
        return Maps(keys.unsqueeze(0), *by_head(self.v_proj, self.value_heads))

    def describe(self) -> CollaborativeSignature:
        return CollaborativeSignature(
            self.num_heads,
            self.key_dim,
            self.v_head_size,
            self.scale,
            self.bias,
            self.value_heads,
        )

    def cached_floats_per_token(self) -> tuple[int, int]:
        content = self.num_heads if self.bias == "content" else 0
        return self.key_dim + content, self.value_heads * self.v_head_size


def init_mixing(mixing: Tensor, how: str) -> None:
    """Fill the mixing matrix ``M (H, K)`` in place.

    ``xavier``: uniform in +-sqrt(6/(H+K)), as in the authors' fork.  ``block``: ones where head i
    owns dimension k, else zeros; dimensions are dealt out in order and as evenly as ``K/H`` allows,
    so that training starts from concatenated heads (where K is no multiple of H, more evenly than
    in the authors' library).  ``normal``: mean 0, standard deviation 0.2, as
    in the authors' library.  ``ones``: all heads alike in queries and keys.

    Raises:
        ValueError: unknown ``how``, or ``block`` with ``K < H`` (a head would see nothing).
    """
    check_choice("mixing init", how, MIXING_INITS)
    num_heads, key_dim = mixing.shape
    if how == "xavier":
        nn.init.xavier_uniform_(mixing)
    elif how == "normal":
        nn.init.normal_(mixing, std=0.2)
    elif how == "ones":
        nn.init.ones_(mixing)
    else:
        if key_dim < num_heads:
            raise ValueError(
                f"block mixing deals {key_dim} key dimensions out to {num_heads} heads: give at "
                "least one a head, or choose another mixing init"
            )
        owners = torch.arange(key_dim) * num_heads // key_dim  # (K)
        with torch.no_grad():
            mixing.copy_(owners[None, :] == torch.arange(num_heads)[:, None])
