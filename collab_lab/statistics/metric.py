"""Metrics that weigh directions of weights: a ridge on them, and second moments of rows."""

from __future__ import annotations

import torch
from torch import Tensor

#: Share of the mean of a metric's diagonal that is added to all of it: in directions that sentences
#: hardly show, maps must not come out arbitrarily large.
RIDGE = 1e-3


#: Columns that :func:`gram` multiplies at once.
BLOCK = 256


def ridged(metric: Tensor) -> Tensor:
    """A metric ``(..., n, n)`` with :data:`RIDGE`."""
    mean = metric.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    least = 1e-30  # of an attention without any effect
    return metric + (RIDGE * mean).clamp_min(least) * torch.eye(metric.size(-1)).to(metric)


def gram(x: Tensor, weighted: Tensor | None = None) -> Tensor:
    """``weighted^T x (..., n, n)`` of ``x (..., N, n)``: blocks of the upper half, mirrored.

    Args:
        weighted: rows of ``x`` times a number each; default: x itself.
    """
    left, n = x if weighted is None else weighted, x.size(-1)
    result = x.new_empty(*x.shape[:-2], n, n)
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        result[..., rows, start:] = block = left[..., rows].mT @ x[..., start:]
        result[..., start:, rows] = block.mT
    return result
