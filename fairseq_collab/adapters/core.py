"""Trained heads of another library as shared keys, and how batch-first models call them.

    s (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T  ~  s q_i(x) (y Wk~^T)^T + (equal for all keys)

The queries ``q_i`` are diagonal, full or own (:mod:`fairseq_collab.attention.collaborative`); the
closed forms are those of :mod:`fairseq_collab.convert.low_rank`.  With ``K = H h`` they are exact.

Shapes: ``x (B, T, d)``, ``y (B, S, d_y)``; ``Wq_i, Wk_i (h, .)`` with ``h = d/H``; masks
``(B or 1, 1 or H, T or 1, S)``, added to the scores, or true where a query may look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.attention.scores import head_scores
from fairseq_collab.convert.base import Part
from fairseq_collab.convert.calibrate import Moments
from fairseq_collab.convert.kinds import shared_keys

#: Weight and bias of a linear map, if it has one.
Projection = tuple[Tensor, Tensor | None]


def collaborative_core(
    name: str,
    projections: Sequence[Projection],
    *,
    num_heads: int,
    key_dim: int,
    query: str,
    scaling: float,
    dropout: float = 0.0,
    seen: Moments | None = None,
) -> CollaborativeAttention:
    """Heads with a shared key that score as the trained heads do, or nearly so.

    Args:
        name: of the attention, for messages.
        projections: of queries ``(H h, d)``, keys and values ``(H h, d_y)``, heads stacked.
        key_dim: ``K``; exact at ``H h``.
        query: the query mixing: diagonal, full or own; or separate, each head's own K/H dimensions.
        scaling: the factor of the trained heads' scores.
        seen: moments of the attention's inputs, which weigh the errors.

    Returns:
        An attention without an output projection, which the caller has.

    Raises:
        UserError: heads that are pruned or of another size than d/H, NaN weights, or a key width
            out of range.
    """
    check(name, projections, num_heads, key_dim)
    if query == "separate" and key_dim % num_heads:
        raise UserError(f"key width {key_dim} is no multiple of its {num_heads} heads", name)
    dim, kdim = (weight.size(1) for weight, _ in projections[:2])
    trained = {}
    for letter, (weight, bias) in zip("qkv", projections, strict=True):
        trained[f"{letter}_proj.weight"] = weight
        trained[f"{letter}_proj.bias"] = weight.new_zeros(len(weight)) if bias is None else bias
    like = projections[0][0]  # device and precision
    source = ConcatenatedAttention(dim, num_heads, kdim=kdim).to(like)
    source.load_state_dict(trained, strict=False)
    source.scaling = scaling
    part = Part(source, seen)
    weights, _ = shared_keys(part, key_dim, query)
    core = CollaborativeAttention(
        dim,
        num_heads,
        key_dim,
        query_mixing="diagonal" if query == "separate" else query,
        kdim=kdim,
        dropout=dropout,
    ).to(like)
    core.load_state_dict(
        {"signature": core.signature, **weights, **part.kept("v_proj", "out_proj")}
    )
    del core.out_proj
    return core


def check(name: str, projections: Sequence[Projection], num_heads: int, key_dim: int) -> None:
    """Raise UserError for heads that cannot share keys."""
    dim = projections[0][0].size(1)
    sizes = [len(weight) for weight, _ in projections]
    if sizes != [dim] * 3 or dim % num_heads:
        raise UserError(
            f"{num_heads} heads have queries, keys and values of sizes "
            f"{', '.join(map(str, sizes))} in all, not of the model's size {dim}",
            name,
            "heads that were pruned or resized cannot be swapped",
        )
    if not 1 <= key_dim <= dim:
        raise UserError(f"key width {key_dim} is not within 1 and {dim}", name)
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
