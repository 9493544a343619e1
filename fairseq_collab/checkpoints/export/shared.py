"""Heads that share keys and values, for engines whose heads may do so, too.

    q_i = x A_i,   k_g = y B_g,   v_g = y V_g,   g = i G // H      (biases are part of the maps)

Where keys and values of an attention come in fewer heads than its queries, each is exported once.
Of collaborative heads with shared values, the one key of all heads goes with each value; its mixing
and content scores are in the queries, as in decoding (:meth:`.HeadAttention.project_query`).

Shapes: ``A (H, d + 1, e)``, ``B (G, d_y + 1, e)``, ``V (G, d_y + 1, h_v)``.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from fairseq_collab.analysis.scores import matrix_of
from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.scores import for_each_head


def shares(attention: HeadAttention) -> bool:
    """Whether there are fewer heads of keys and values than of queries."""
    return bool(attention.num_heads) and key_value_heads(attention) < attention.num_heads


@torch.no_grad()
def key_value_heads(attention: HeadAttention) -> int:
    """``G``."""
    y = attention.out_proj.weight.new_zeros(1, 1, attention.kdim)
    return max(attention.project_key(y).size(1), attention.project_value(y).size(1))


@torch.no_grad()
def shared_size(attention: HeadAttention) -> int:
    """The smallest size of heads that :func:`shared_weights` takes."""
    y = attention.out_proj.weight.new_zeros(1, 1, attention.kdim)
    return max(attention.project_key(y).size(3), attention.v_head_size)


@torch.no_grad()
def shared_weights(attention: HeadAttention, size: int) -> dict[str, Tensor]:
    """Weights with which heads of ``size`` h, ``G`` of them for keys and values, do the same.

    Returns:
        ``q_proj`` ``.weight (H h, d)`` and ``.bias``, ``k_proj`` and ``v_proj`` ``.weight (G h,
        d_y)`` and ``.bias``, ``out_proj`` ``.weight (d, H h)`` and ``.bias``; scores are to be
        multiplied with ``h^-0.5``.
    """
    exact, dtype = copy.deepcopy(attention).double(), attention.out_proj.weight.dtype
    like, groups = exact.out_proj.weight, key_value_heads(attention)
    queries = matrix_of(exact.project_query, exact.embed_dim, like) * size**0.5
    keys, values = (
        for_each_head(matrix_of(project, exact.kdim, like).unsqueeze(0), groups)[0]
        for project in (exact.project_key, exact.project_value)
    )
    weights: dict[str, Tensor] = {"out_proj.bias": exact.out_proj.bias}
    for name, maps in (("q_proj", queries), ("k_proj", keys), ("v_proj", values)):
        rows = _widened(maps, size).transpose(1, 2).flatten(0, 1)  # (G h, d_y + 1)
        weights |= {f"{name}.weight": rows[:, :-1], f"{name}.bias": rows[:, -1]}
    columns = like.unflatten(1, (exact.num_heads, -1))  # (d, H, h_v)
    weights["out_proj.weight"] = _widened(columns, size).flatten(1)
    return {name: weight.detach().to(dtype) for name, weight in weights.items()}


def _widened(x: Tensor, size: int) -> Tensor:
    """Filled up with zeros: ``(..., n) -> (..., size)``."""
    return torch.nn.functional.pad(x, (0, size - x.size(-1)))
