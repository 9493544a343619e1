"""Trained heads of another library as collaborative heads, and how batch-first models call them.

    s (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T  ~  s ( x Wq~^T diag(m_i) Wk~ y^T + y c_i )

with the content bias ``c_i = Wk_i^T bq_i``, up to what is the same for all keys, which the softmax
ignores (Cordonnier, Loukas, Jaggi 2020, arXiv 2006.16362, on re-parametrising trained heads).  With
``K = H h`` this is exact: weights are copied.

Shapes: ``x (B, T, d)``, ``y (B, S, d_y)``; ``Wq_i, Wk_i (h, .)`` with ``h = d/H``; masks
``(B or 1, 1 or H, T or 1, S)``, added to the scores, or true where a query may look.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.attention.scores import head_scores
from fairseq_collab.checkpoints.reparametrize.convert import collaborative_weights, head_weights
from fairseq_collab.checkpoints.reparametrize.factorise import MAX_STEPS, Problem, factorise

#: Takes new keys and values, returns all so far (a cache).
Keep = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def collaborative_core(
    name: str,
    projections: tuple[nn.Linear, ...],
    *,
    num_heads: int,
    key_dim: int,
    scaling: float,
    dropout: float = 0.0,
    max_steps: int = MAX_STEPS,
    seed: int = 1,
) -> CollaborativeAttention:
    """Collaborative heads that score as the trained ones do, or nearly so.

    Args:
        name: of the attention, for messages.
        projections: of queries ``(H h, d)``, keys and values ``(H h, d_y)``, heads stacked.
        key_dim: ``K``; exact at ``H h``.
        scaling: the factor of the trained heads' scores.
        max_steps, seed: of the factorisation.

    Returns:
        A core without an output projection: who calls it has one.

    Raises:
        UserError: heads that are pruned or of another size than d/H, NaN weights, or a key
            dimension out of range.
    """
    query, key, value = projections
    dim = query.in_features
    check(name, projections, dim, num_heads, key_dim)
    source = ConcatenatedAttention(dim, num_heads, kdim=key.in_features, vdim=value.in_features)
    for own, given in ((source.q_proj, query), (source.k_proj, key), (source.v_proj, value)):
        own.to(given.weight)  # device and precision
        with torch.no_grad():
            own.weight.copy_(given.weight)
            own.bias.zero_() if given.bias is None else own.bias.copy_(given.bias)
    source.scaling = scaling
    wq, wk, _ = head_weights(source)
    problem = Problem(wq, wk)
    factors = factorise(problem, key_dim, max_steps=max_steps, seed=seed)
    core = CollaborativeAttention(
        dim,
        num_heads,
        key_dim,
        kdim=key.in_features,
        vdim=value.in_features,
        bias="content",
        dropout=dropout,
    )
    weights = collaborative_weights(source, problem, factors)
    core.to(query.weight)
    core.load_state_dict({**weights, "signature": core.signature}, strict=False)
    del core.out_proj
    return core.train(query.training)


def check(
    name: str, projections: tuple[nn.Linear, ...], dim: int, num_heads: int, key_dim: int
) -> None:
    """Whether these heads can become collaborative ones.

    Raises:
        UserError: they cannot.
    """
    if any(projection.out_features != dim for projection in projections) or dim % num_heads:
        sizes = ", ".join(str(projection.out_features) for projection in projections)
        raise UserError(
            f"{num_heads} heads have queries, keys and values of sizes {sizes} in all, not of the "
            f"model's size {dim}",
            name,
            "heads that were pruned or resized cannot be swapped",
        )
    if not 1 <= key_dim <= dim:
        raise UserError(f"key dimension {key_dim} is not within 1 and {dim}", name)
    for projection in projections:
        for parameter in projection.parameters():
            if not torch.isfinite(parameter).all():
                raise UserError("its weights hold NaN or infinity", name, "load an intact model")


def attend(
    core: CollaborativeAttention,
    x: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    keep: Keep | None = None,
) -> tuple[Tensor, Tensor]:
    """Heads side by side ``(B, T, d)``, before any output projection, and weights ``(B, H, T, S)``.

    Args:
        mask: see the head of the module.
        keep: a cache, which holds one key for all heads: ``(B, 1, S, K + H)``.
    """
    k = core.project_key(y.transpose(0, 1))  # (B, 1, S, K + H)
    v = core.project_value(y.transpose(0, 1))  # (B, H, S, h)
    if keep is not None:
        k, v = keep(k, v)
    return weigh(core, core.project_query(x.transpose(0, 1)), k, v, mask)


def weigh(
    core: CollaborativeAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """As :func:`attend`, from queries ``(B, H, T, e)``, keys ``(B, 1, S, e)`` and values."""
    scores = head_scores(q, k)  # (B, H, T, S)
    if mask is not None:
        boolean = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if boolean else scores + mask
    weights = core.dropout_module(scores.softmax(dim=-1))
    return (weights @ v).transpose(1, 2).flatten(2), weights
