"""Gram matrices of rows, and a ridge on metrics that weigh directions of weights."""

from __future__ import annotations

import math
from itertools import count

import torch
from torch import Tensor

#: Share of the mean of a metric's diagonal that is added to all of it: in directions that sentences
#: hardly show, maps must not come out arbitrarily large.
RIDGE = 1e-3


#: Columns that :func:`gram` multiplies at once, and rows of :func:`upper`.
BLOCK = 256


def ridged(metric: Tensor) -> Tensor:
    """A metric ``(..., n, n)`` with :data:`RIDGE` added."""
    mean = metric.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    least = 1e-30  # of an attention without any effect
    return metric + (RIDGE * mean).clamp_min(least) * torch.eye(metric.size(-1)).to(metric)


def gram(x: Tensor, weighted: Tensor | None = None) -> Tensor:
    """Compute ``weighted^T x (..., n, n)`` of ``x (..., N, n)`` from its upper half only.

    Args:
        weighted: the rows of ``x``, each times a number; default: ``x``.
    """
    left, n = x if weighted is None else weighted, x.size(-1)
    result = x.new_empty(*x.shape[:-2], n, n)
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        result[..., rows, start:] = block = left[..., rows].mT @ x[..., start:]
        result[..., start:, rows] = block.mT
    return result


def upper(x: Tensor, y: Tensor) -> Tensor:
    """The upper half of a symmetric ``x^T y (n, n)`` as one vector; ``x`` and ``y`` are ``(N, n)``.

    It takes about half of the memory.  :data:`BLOCK` rows follow each other, each from its block
    on the diagonal to the last column.
    """
    starts = range(0, x.size(1), BLOCK)
    blocks = (x[:, start : start + BLOCK].mT @ y[:, start:] for start in starts)
    return torch.cat([x.new_empty(0), *(block.flatten() for block in blocks)])


def size_of_upper(n: int) -> int:
    """The length of the vector that :func:`upper` returns."""
    return sum(min(BLOCK, n - start) * (n - start) for start in range(0, n, BLOCK))


def mirrored(half: Tensor) -> Tensor:
    """The symmetric matrix ``(n, n)`` whose half is a vector of :func:`upper`."""
    n = next(n for n in count(math.isqrt(len(half))) if size_of_upper(n) == len(half))
    result, begin = half.new_empty(n, n), 0
    for start in range(0, n, BLOCK):
        rows, shape = slice(start, start + BLOCK), (min(BLOCK, n - start), n - start)
        result[rows, start:] = block = half[begin : begin + shape[0] * shape[1]].view(shape)
        result[start:, rows] = block.mT
        begin += block.numel()
    return result
