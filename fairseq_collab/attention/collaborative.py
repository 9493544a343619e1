"""Shared keys (collaborative heads): one key for all heads, and each head mixes the query.

    head_i = softmax(s q_i (y Wk^T + bk)^T)(y Wv_g^T + bv_g),      g = i G // H

    query mixing   query of head i             numbers in q and k          source
    diagonal       q_i = (x Wq^T + bq) * m_i   2 d K + H K                 Cordonnier et al. 2020
    full           q_i = (x Wq^T + bq) M_i     2 d K + H K^2               Hu et al. 2024
    own            q_i = x W_i^T + b_i         (H + 1) d K                 Shazeer 2019, any width

Cordonnier, Loukas, Jaggi 2020, "Multi-head attention: collaborate instead of concatenate", arXiv
2006.16362; Hu et al. 2024, "Multi-matrix factorization attention", arXiv 2412.19255; Shazeer 2019,
arXiv 1911.02150, section 3.  Each row contains the row above: ``M_i = diag(m_i)``,
``W_i = M_i^T Wq``.  Standard heads are the diagonal with ``K = d`` where ``m_i`` is one on head i's
own ``d/H`` dimensions and zero elsewhere.

Shapes:
    d  model size    H  heads    K  width of the shared key (the paper's D~k), any K >= 1
    G  heads of values, each serves H/G heads    h_v  size of a head's value
    x  input of queries, size d    y  input of keys and values, size d_y    s  scale of the scores
    Wq (K, d)    Wk (K, d_y)    m_i (K)    M_i (K, K)    W_i (K, d)    Wv_g (h_v, d_y)

All three mix the *query*.  So there is one key ``(B, 1, S, K)`` for all heads, and a decoder caches
``K`` numbers per token for keys; mixed keys would take ``H K``.  Values are ``G h_v`` numbers per
token: one head of values per head of queries in the paper, fewer as in grouped-query attention
(Ainslie et al. 2023, arXiv 2305.13245, section 2.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.attention.base import HeadAttention
from fairseq_collab.attention.building import (
    INITS,
    SCALES,
    check_choice,
    check_shared_evenly,
    check_sizes,
    head_size,
    init_output,
    init_projection,
    make_linear,
    projection_of,
    scaling,
    split_heads,
)
from fairseq_collab.attention.signature import Signature, choice_field, labelled_field

#: Queries of a head: the shared query scaled, or times a matrix; or a separate query.
QUERY_MIXINGS = ("diagonal", "full", "own")
#: Initial mixing: see :func:`init_mixing`.
MIXING_INITS = ("block", "xavier")


@dataclass(frozen=True)
class CollaborativeSignature(Signature):
    kind = 2

    num_heads: int = labelled_field("heads")
    key_dim: int = labelled_field("key width")
    v_head_size: int = labelled_field("value head size")
    scale: str = choice_field("scale", SCALES)
    value_heads: int = labelled_field("value heads")
    query_mixing: str = choice_field("query mixing", QUERY_MIXINGS)


class CollaborativeAttention(HeadAttention):
    """``H`` heads that share one key of width ``K``.

    Parameters: ``mixing (H, K)`` if diagonal, ``(H, K, K)`` if full; with own queries there is no
    mixing, and ``q_proj`` has ``H K`` rows.

    Args:
        num_heads: ``H``; must divide ``d`` unless ``v_head_size`` is given.
        key_dim: ``K``, the key width: outputs of ``k_proj``, as of heads with keys of their own.
        query_mixing: ``diagonal`` (the paper's), ``full`` or ``own``.
        value_heads: ``G``, which divides ``H``; ``H`` unless given.
        v_head_size: ``h_v``; ``d/H`` unless given.
        kdim: size of the input of keys and values, if not ``d``.
        mixing_init: ``block`` (all three start as standard heads of size ``K/H``: one function
            per seed) or ``xavier`` (the authors' fork): see :func:`init_mixing`.  Own
            queries start ``block``, or ``xavier`` as one projection.
        scale: ``embed`` for ``(d/H)^-0.5`` at every K (the authors' fork), ``key`` for
            ``(K/H)^-0.5`` (their library).
        value_init: ``constant``, or ``fork`` for gain 1/sqrt(2) at ``K = d`` only, and else 1.

    Raises:
        ValueError: a size is not positive, ``d/H`` or ``H/G`` is not whole, or an unknown choice.

    Example: a shared key of a quarter of the model size.

        >>> attention = CollaborativeAttention(64, 8, key_dim=16, query_mixing="full")
        >>> x = torch.randn(5, 2, 64)  # (T, B, d)
        >>> output, weights = attention(x, x, x)
        >>> [*output.shape], [*weights.shape]  # (T, B, d), (B, T, S)
        ([5, 2, 64], [2, 5, 5])
        >>> attention.cached_floats_per_token()  # keys, values
        (16, 64)
    """

    signature_type = CollaborativeSignature

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_dim: int,
        *,
        query_mixing: str,
        value_heads: int | None = None,
        v_head_size: int | None = None,
        kdim: int | None = None,
        mixing_init: str = "block",
        scale: str = "embed",
        value_init: str = "constant",
        **options: Any,
    ):
        super().__init__(embed_dim, **options)
        value_heads = num_heads if value_heads is None else value_heads
        check_sizes(num_heads=num_heads, key_dim=key_dim, value_heads=value_heads)
        check_shared_evenly(num_heads, value_heads, "value heads")
        check_choice("query mixing", query_mixing, QUERY_MIXINGS)
        check_choice("value init", value_init, INITS)
        v_head_size = head_size(v_head_size, embed_dim, num_heads)
        self.num_heads, self.key_dim, self.query_mixing = num_heads, key_dim, query_mixing
        self.value_heads, self.v_head_size = value_heads, v_head_size
        self.scale = scale
        self.scaling = scaling(scale, embed_dim, num_heads, key_dim / num_heads)
        kdim = kdim or embed_dim
        # In fairseq's order: a seed gives fairseq's weights.
        self.k_proj = make_linear(kdim, key_dim)
        self.v_proj = make_linear(kdim, value_heads * v_head_size)
        self.q_proj = make_linear(embed_dim, key_dim)
        self.out_proj = make_linear(num_heads * v_head_size, embed_dim)

        same_dims = kdim == embed_dim
        reduced = key_dim != embed_dim
        init_projection(self.k_proj, same_dims and not reduced)
        init_projection(self.v_proj, same_dims and not (reduced and value_init == "fork"))
        init_projection(self.q_proj, same_dims and not reduced)
        init_output(self.out_proj)
        self._start_queries(mixing_init)

    def _start_queries(self, mixing_init: str) -> None:
        """Make the mixing, or a query projection per head that starts from the shared one."""
        if self.query_mixing == "own" and mixing_init == "xavier":
            rows = self.num_heads * self.key_dim
            self.q_proj = make_linear(self.embed_dim, rows)
            init_projection(self.q_proj, small=False)
            return
        mixing = torch.empty(self.num_heads, self.key_dim)
        init_mixing(mixing, mixing_init)
        if self.query_mixing == "own":
            self.q_proj = mixed_projection(self.q_proj, torch.diag_embed(mixing))
        else:
            full = self.query_mixing == "full"
            self.mixing = nn.Parameter(torch.diag_embed(mixing) if full else mixing)

    def project_query(self, x: Tensor) -> Tensor:
        q = self.q_proj(x)  # (T, B, K), or (T, B, H K) if own; the result is (B, H, T, K)
        if self.query_mixing == "own":
            return split_heads(q * self.scaling, self.num_heads)
        mixing = self.scaling * self.mixing
        if self.query_mixing == "diagonal":
            return q.transpose(0, 1).unsqueeze(1) * mixing.unsqueeze(1)
        # One product for all heads: (T, B, K) x (K, H K).
        return split_heads(q @ mixing.transpose(0, 1).flatten(1), self.num_heads)

    def project_key(self, y: Tensor) -> Tensor:
        return self.k_proj(y).transpose(0, 1).unsqueeze(1)  # (B, 1, S, K)

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(y), self.value_heads)  # (B, G, S, h_v)

    def cached_floats_per_token(self) -> tuple[int, int]:
        return self.key_dim, self.value_heads * self.v_head_size


def mixed_projection(shared: nn.Linear, mixing: Tensor) -> nn.Linear:
    """Stack the queries of all heads in one projection: ``W_i = M_i^T Wq``, ``b_i = bq M_i``.

    Shapes: ``shared`` d -> K; ``mixing (H, K, K)``; the result d -> H K.
    """
    weight = (mixing.transpose(1, 2) @ shared.weight).flatten(0, 1)  # (H K, d)
    return projection_of(weight, (shared.bias @ mixing).flatten())


def widest_key(query_mixing: str, embed_dim: int, kdim: int) -> float:
    """Return the key width above which no new scores are possible.

    It is the rank that queries (with a dimension for their bias) or keys can have; for ``own``,
    whose bias costs no dimension, one less would do.  Diagonal mixing has no limit below ``H d``.
    """
    return math.inf if query_mixing == "diagonal" else max(embed_dim, kdim) + 1


def init_mixing(mixing: Tensor, init: str) -> None:
    """Fill the mixing matrix ``M (H, K)`` in place.

    ``block``: ones where head i owns dimension k, else zeros.  Dimensions are dealt out in order
    and as evenly as ``K/H`` allows, so that training starts from standard heads (where K is no
    multiple of H, more evenly than in the authors' library; for ``K < H``, neighbouring heads share
    a dimension).  ``xavier``: uniform in +-sqrt(6/(H+K)), as in the authors' fork.

    Raises:
        ValueError: unknown ``init``.
    """
    check_choice("mixing init", init, MIXING_INITS)
    num_heads, key_dim = mixing.shape
    if init == "xavier":
        nn.init.xavier_uniform_(mixing)
    else:
        heads, dims = torch.arange(num_heads)[:, None], torch.arange(key_dim)
        owned = dims * num_heads // key_dim == heads  # (H, K)
        if (
            key_dim < num_heads
        ):  # several heads share a dimension, instead of several dimensions per head
            owned = heads * key_dim // num_heads == dims
        with torch.no_grad():
            mixing.copy_(owned)
