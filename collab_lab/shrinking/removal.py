"""What it costs to remove blocks of a linear map's inputs, when the rest makes up for what it can.

    o = W h + b,      price of removing the inputs R = 1/2 tr(W_R^T Delta W_R (P_RR)^-1) / ln 2

in bits per target token, with ``P = C^-1``, C the covariance of h, and ``Delta`` the Fisher
information of o.  ``(P_RR)^-1`` is the part of ``h_R`` that the other inputs do not predict, and
``W_K + W_R C_RK C_KK^-1`` is the best map of the rest in any metric of o.  When R goes,

    W <- W - W_R (P_RR)^-1 P_R.,      P <- P - P_.R (P_RR)^-1 P_R.

so that prices of one block after the other add up exactly.  This is the optimal brain surgeon
(Hassibi and Stork 1993) on blocks, as in ZipLM (Kurtic et al. 2023, arXiv 2302.04089).

The inputs of ``out_proj`` are the outputs of all heads side by side: a block is a head.  Those of
``fc2`` are the units of a feed-forward block: a block is one of them.

Shapes: ``W (d, n)``, ``C, P (n, n)``, ``Delta (d, d)``; n inputs in blocks of ``size``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

#: Removed inputs are dropped from the matrices when fewer than this share is left.
COMPACT = 0.75


def removal_order(
    weight: Tensor,
    covariance: Tensor,
    output_fisher: Tensor,
    size: int = 1,
    order: Sequence[int] | None = None,
) -> Iterator[tuple[float, int]]:
    """All blocks, always the cheapest of those left: the rise of the price, and the block.

    Args:
        covariance: invertible.
        size: inputs of a block.
        order: of the blocks, if they are not to be chosen.
    """
    w, p = weight.clone(), covariance.inverse()
    v = output_fisher @ w  # Delta W follows W
    blocks = list(range(w.size(1) // size))  # those in the matrices
    gone: set[int] = set()
    wanted = iter(order or ())
    while len(gone) < len(blocks):
        rises = _prices(w, v, p, size)
        rises[list(gone)] = math.inf
        index = int(rises.argmin()) if order is None else blocks.index(next(wanted))
        yield float(rises[index]), blocks[index]
        gone.add(index)
        rows = slice(index * size, (index + 1) * size)
        gain = p[rows, rows].inverse() @ p[rows]  # (size, n)
        for matrix in (w, v, p):  # in place: P has 32 MB at F = 2048
            matrix.addmm_(matrix[:, rows].clone(), gain, alpha=-1)
        p[rows, rows] = p.new_ones(size).diag()  # the price of what is gone stays finite
        if len(blocks) - len(gone) < COMPACT * len(blocks):
            left = [i for i in range(len(blocks)) if i not in gone]
            inputs = [i * size + j for i in left for j in range(size)]
            w, v, p = w[:, inputs], v[:, inputs], p[inputs][:, inputs]
            blocks, gone = [blocks[i] for i in left], set()


def prices(weight: Tensor, covariance: Tensor, output_fisher: Tensor, size: int = 1) -> list[float]:
    """The price of removing each block alone, in bits."""
    v = output_fisher @ weight
    return [float(price) for price in _prices(weight, v, covariance.inverse(), size)]


def _prices(w: Tensor, v: Tensor, p: Tensor, size: int) -> Tensor:
    """``(n / size,)``, of ``W``, ``Delta W`` and ``P``."""
    if size == 1:
        return (w * v).sum(0) / p.diagonal() / 2 / math.log(2)
    fisher = w.unflatten(1, (-1, size)).permute(1, 2, 0) @ v.unflatten(1, (-1, size)).transpose(
        0, 1
    )
    shape = (p.size(0) // size, size) * 2
    unpredicted = p.view(shape).diagonal(dim1=0, dim2=2).permute(2, 0, 1).inverse()
    return (fisher * unpredicted).sum((1, 2)) / 2 / math.log(2)
