"""Collaborative heads as the authors' translation code has them: mixed keys, cached per head.

    head_i = softmax((d/H)^-0.5 (x Wq^T + bq) ((y Wk^T + bk) diag(m_i))^T)(y Wv_i^T + bv_i)

Cordonnier, Loukas, Jaggi 2020, arXiv 2006.16362.  A baseline of the benchmark, written from a
description of that code: the mixing multiplies the *keys*, and the cache of a decoder holds the
mixed keys of every head, ``H K`` numbers a token, for every beam.  The function is that of
:class:`fairseq_collab.attention.CollaborativeAttention`, which mixes the query and caches ``K``.

Shapes: ``B`` rows (sentences times beams), ``T`` queries, ``S`` keys, ``Wq, Wk (K, d)``, mixing
``M (H, K)``, ``Wv, Wo (d, d)``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: ``key (B, H, S, K)`` and ``value (B, H, S, d/H)``; empty before the first step.
Cache = dict[str, Tensor]


class AuthorsAttention(nn.Module):
    """Parameters are named as in ``CollaborativeAttention``: one state dict fits both."""

    def __init__(self, embed_dim: int, num_heads: int, key_dim: int):
        super().__init__()
        self.num_heads = num_heads
        self.scaling = (embed_dim / num_heads) ** -0.5
        self.q_proj = nn.Linear(embed_dim, key_dim)
        self.k_proj = nn.Linear(embed_dim, key_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.mixing = nn.Parameter(torch.ones(num_heads, key_dim))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        _value: Tensor,
        incremental_state: Cache | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, None]:
        """Attend from ``query (T, B, d)`` to ``key (S, B, d)``: ``(T, B, d)``, and no weights.

        Args:
            incremental_state: keys and values of earlier steps, to which those of ``key`` are
                added.
            attn_mask: ``(T, S)``, added to the scores.
        """
        q = (self.q_proj(query) * self.scaling).transpose(0, 1)  # (B, T, K)
        k = self.k_proj(key).transpose(0, 1).unsqueeze(1) * self.mixing[:, None, :]
        v = self.v_proj(key).unflatten(2, (self.num_heads, -1)).permute(1, 2, 0, 3)
        if incremental_state:
            k = torch.cat([incremental_state["key"], k], dim=2)  # (B, H, S, K)
            v = torch.cat([incremental_state["value"], v], dim=2)  # (B, H, S, d/H)
        if incremental_state is not None:
            incremental_state.update(key=k, value=v)
        scores = torch.einsum("bqd,bhkd->bhqk", q, k)  # (B, H, T, S)
        if attn_mask is not None:
            scores = scores + attn_mask
        heads = scores.softmax(dim=-1) @ v  # (B, H, T, d/H)
        return self.out_proj(heads.permute(2, 0, 1, 3).flatten(2)), None

    def reorder_incremental_state(self, incremental_state: Cache, new_order: Tensor) -> None:
        """Make row ``i`` of the cache what row ``new_order[i]`` is now (beam search)."""
        for name, tensor in incremental_state.items():
            incremental_state[name] = tensor.index_select(0, new_order)
