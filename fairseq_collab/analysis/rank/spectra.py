"""Singular values of what heads score with, and how many of them matter.

    W_i = A_i B_i^T                      the map of head i: its scores are x W_i y^T, biases apart
    W_1 + ... + W_H                      "sum": [A_1 ... A_H] [B_1 ... B_H]^T
    [W_1, ..., W_H], [W_1; ...; W_H]     "stacked": side by side, one above the other

Shapes: ``A_i (d, e)``, ``B_i (d_y, e)``, batched as ``A (H, d, e)``, ``B (H, d_y, e)``; singular
values ``s (..., r)``, largest first.  *Energy* is their square, so that ``s_j^2 / sum s^2`` is the
share of the squared Frobenius norm that dimension j holds.

Cordonnier et al. 2020 (arXiv 2006.16362) show the energy of each ``W_i`` beside that of the product
of the concatenated projections, which is the *sum* above.  In a sum, maps may also cancel, so we
give the two stacks, too: in how many dimensions all heads together read the queries' inputs (side
by side) and the keys' inputs (one above the other).  Nothing is centred, unlike in a PCA of data
points: these are maps, and a map has no mean.
"""

from __future__ import annotations

import torch
from torch import Tensor


def numerical_rank(s: Tensor, shape: tuple[int, int], tolerance: float | None = None) -> Tensor:
    """Number of singular values above ``tolerance`` times the largest: ``(..., r) -> (...)``.

    Args:
        shape: of the matrix.  The default tolerance, ``max(shape)`` times the spacing of numbers
            around 1, is that of ``numpy.linalg.matrix_rank``: what rounding could have made of 0.
    """
    if tolerance is None:
        tolerance = max(shape) * torch.finfo(s.dtype).eps
    return (s > tolerance * s[..., :1]).sum(-1)


def energy_rank(s: Tensor, share: float) -> Tensor:
    """The fewest dimensions with ``share`` of the energy (0 of none): ``(..., r) -> (...)``."""
    held = s.square().cumsum(-1)
    # A sum that rounding leaves a little short of the share has reached it.
    short = held < share * held[..., -1:] * (1 - 1e-12)
    return short.sum(-1) + (held[..., -1] > 0)


def effective_rank(s: Tensor) -> Tensor:
    """exp of the entropy of ``s / sum s``, and 0 of none: ``(..., r) -> (...)``.

    Between 1 and the rank, which it equals where all singular values are equal; needs no threshold
    (Roy and Vetterli 2007, "The effective rank").
    """
    total = s.sum(-1, keepdim=True)
    shares = s / total.clamp_min(torch.finfo(s.dtype).tiny)
    return torch.special.entr(shares).sum(-1).exp() * (total.squeeze(-1) > 0)


def centre_rows(logits: Tensor) -> Tensor:
    """Take each row's mean off, which the softmax does not see: ``(..., T, S) -> (..., T, S)``."""
    return logits - logits.mean(-1, keepdim=True)


def map_spectrum(a: Tensor, b: Tensor) -> Tensor:
    """Singular values of ``A B^T``, in the size of its factors.

    ``(..., d, e), (..., d_y, e) -> (..., r)`` with ``r = min(e, d, d_y)``; the others are zero.
    """
    return torch.linalg.svdvals(_core(a) @ _core(b).transpose(-2, -1))


def sum_spectrum(a: Tensor, b: Tensor) -> Tensor:
    """Singular values of ``A_1 B_1^T + ... + A_H B_H^T``: ``(H, d, e), (H, d_y, e) -> (r)``."""
    return torch.linalg.svdvals(torch.einsum("hde,hfe->df", a, b))


def stacked_spectrum(a: Tensor, b: Tensor) -> Tensor:
    """Singular values of the maps one above the other: ``(H, d, e), (H, d_y, e) -> (r)``.

    ``[A_1 B_1^T; ...; A_H B_H^T]`` is ``(H d, d_y)``.  For the maps side by side exchange ``a`` and
    ``b``: transposing a matrix leaves its singular values as they are.
    """
    maps = _core(a) @ b.transpose(-2, -1)  # (H, min(d, e), d_y)
    return torch.linalg.svdvals(maps.flatten(0, 1))


def used_width(a: Tensor, b: Tensor) -> Tensor:
    """Columns that are not zero in either factor, a bound of a map's rank: ``(H, ., e) -> (H)``.

    Head i of collaborative heads with block mixing, for one, uses only its own columns.
    """
    return (a.any(-2) & b.any(-2)).sum(-1)


def _core(a: Tensor) -> Tensor:
    """``R`` of ``A = Q R``: a product with ``R`` has the singular values of one with ``A``."""
    return torch.linalg.qr(a, mode="r").R
