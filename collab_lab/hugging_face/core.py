"""Trained heads of another library as shared keys, and how batch-first models call them.

    s (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T  ~  s q_i(x) (y Wk~^T)^T + (equal for all keys)

The queries ``q_i`` are diagonal, full or own (:mod:`fairseq_collab.attention.collaborative`); the
closed forms are those of :mod:`collab_lab.conversion.low_rank`.  With ``K = H h`` they are exact.

Shapes: ``x (B, T, d)``, ``y (B, S, d_y)``; ``Wq_i, Wk_i (h, .)`` with ``h = d/H``; masks
``(B or 1, 1 or H, T or 1, S)``, added to the scores, or true where a query may look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_lab.conversion.base import TrainedAttention
from collab_lab.conversion.kinds import shared_keys
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.attention.scores import head_scores

#: Weight and bias of a linear map, if it has one.
Linear = tuple[Tensor, Tensor | None]


def trained_heads(
    name: str, projections: Sequence[Linear], *, num_heads: int, scaling: float
) -> ConcatenatedAttention:
    """The heads of another library's attention as an attention of this project.

    Args:
        name: of the attention, for messages.
        projections: of queries ``(H h, d)``, keys and values ``(H h, d_y)``, heads stacked; then
            of the output, if there is one.  Otherwise the output is the heads side by side.
        scaling: the factor of the trained heads' scores.

    Raises:
        UserError: heads that are pruned or of another size than d/H, or NaN weights.
    """
    check(name, projections, num_heads)
    dim, kdim = (weight.size(1) for weight, _ in projections[:2])
    heads = ConcatenatedAttention(dim, num_heads, kdim=kdim).to(projections[0][0])
    torch.nn.init.eye_(heads.out_proj.weight)
    trained = {}
    for letter, (weight, bias) in zip(("q", "k", "v", "out"), projections, strict=False):
        trained[f"{letter}_proj.weight"] = weight
        trained[f"{letter}_proj.bias"] = weight.new_zeros(len(weight)) if bias is None else bias
    heads.load_state_dict(trained, strict=False)
    heads.scaling = scaling
    return heads


def collaborative_core(
    trained: TrainedAttention, key_dim: int, query: str, dropout: float
) -> CollaborativeAttention:
    """Heads with a shared key that score as the trained heads do, or nearly so.

    Args:
        trained: of :func:`trained_heads`.
        key_dim: ``K``; exact at ``H h``.
        query: the query mixing: diagonal, full or own; or separate, each head's own K/H dimensions.

    Returns:
        An attention without an output projection, which the caller has.
    """
    heads = trained.module
    weights, _ = shared_keys(trained, key_dim, query)
    core = CollaborativeAttention(
        heads.embed_dim,
        heads.num_heads,
        key_dim,
        query_mixing="diagonal" if query == "separate" else query,
        kdim=heads.kdim,
        dropout=dropout,
    ).to(heads.k_proj.weight)
    copied = trained.copied("v_proj", "out_proj")
    core.load_state_dict(weights | copied)
    del core.out_proj
    return core


def check(name: str, projections: Sequence[Linear], num_heads: int) -> None:
    """Raise UserError for heads that cannot share keys."""
    dim = projections[0][0].size(1)
    sizes = [len(weight) for weight, _ in projections[:3]]
    if sizes != [dim] * 3 or dim % num_heads:
        raise UserError(
            f"{num_heads} heads have queries, keys and values of sizes "
            f"{', '.join(map(str, sizes))} in all, not of the model's size {dim}",
            name,
            "heads that were pruned or resized cannot be swapped",
        )
    parameters = (one for projection in projections for one in projection if one is not None)
    if not all(torch.isfinite(one).all() for one in parameters):
        raise UserError("its weights hold NaN or infinity", name, "load an intact model")


def keys_and_values(core: CollaborativeAttention, y: Tensor) -> tuple[Tensor, Tensor]:
    """One key for all heads ``(B, 1, S, K)``, and values ``(B, H, S, h)``: the cache."""
    source = y.transpose(0, 1)  # (S, B, d_y)
    return core.project_key(source), core.project_value(source)


def attend(
    core: CollaborativeAttention, x: Tensor, keys: tuple[Tensor, Tensor], mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Heads side by side ``(B, T, d)``, before any output projection, and weights ``(B, H, T, S)``.

    ``keys`` and values are as :func:`keys_and_values` makes them.
    """
    k, v = keys
    scores = head_scores(core.project_query(x.transpose(0, 1)), k)  # (B, H, T, S)
    if mask is not None:
        boolean = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if boolean else scores + mask
    weights = core.dropout_module(scores.softmax(dim=-1))
    return (weights @ v).transpose(1, 2).flatten(2), weights
