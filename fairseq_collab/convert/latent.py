"""The target ``latent``: keys and values of all heads from ``r`` numbers per token (DeepSeek-V2).

    c = y C,      B'_i = C Uk_i,      V'_i = C Uv_i

Keys and values are approximated together.  With ``S_i`` of :mod:`.low_rank` for the keys and
``T_i = Z^1/2 V_i Wo_i^T`` for the values (``Z``: covariance of their inputs), ``C`` are the ``r``
largest directions of both, each of the two divided by its own energy, both in the metric ``Z``.  A
latent of ``r = K + V`` numbers contains every key of width ``K`` beside every value of width ``V``,
so that two narrower projections are never better at the same cache.

The bias of the values, which attention weights of sum one hand on unchanged, goes into the
output's; so does what values lose of the mean input.

Shapes: ``C (d_y, r)``, ``Uk_i (r, e)``, ``Uv_i (r, h_v)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fairseq_collab.convert.heads import Heads
from fairseq_collab.convert.low_rank import Roots, largest


def latents(
    heads: Heads, roots: Roots, value_roots: tuple[Tensor, Tensor], size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``C (d_y, r)``, ``Uk (H, r, e)`` and ``Uv (H, r, h_v)``.

    With ``r = d_y`` the latent is the input itself, and the heads' weights stay as they are.

    Args:
        value_roots: ``Z^1/2`` and its inverse.
    """
    keys, values = heads.keys, heads.values[:, :-1]
    if size == keys.size(1):
        return torch.eye(size).to(keys), keys, values
    metric, inverse = value_roots
    left = roots.query @ heads.queries  # (H, d + 1, e)
    k, v = metric @ keys, metric @ values
    gram = torch.zeros_like(metric)
    for part, read in ((k, left.mT @ left), (v, heads.out.mT @ heads.out)):
        of_part = (part @ read @ part.mT).sum(0)
        gram = gram + of_part / of_part.trace().clamp_min(torch.finfo(gram.dtype).tiny)
    directions = largest(gram, size)  # (d_y, r)
    down, key_up, value_up = inverse @ directions, directions.T @ k, directions.T @ v
    read = torch.cat([key_up, value_up], 2).square().mean((0, 2)).sqrt()  # (r)
    scale = (read / down.square().mean(0).sqrt()).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    return down * scale, key_up / scale[:, None], value_up / scale[:, None]
