"""The price of removing groups of a linear map's inputs, if the rest compensates optimally.

    o = W h + b,      price of removing the inputs R = 1/2 tr(W_R^T Delta W_R (P_RR)^-1) / ln 2

in bits per target token, with ``P = C^-1``, C the covariance of h, and ``Delta`` the Fisher
information of o.  ``(P_RR)^-1`` is the part of ``h_R`` that the other inputs do not predict, and
``W_K + W_R C_RK C_KK^-1`` is the best map of the rest in any metric of o.  When R goes,

    W <- W - W_R (P_RR)^-1 P_R.,      P <- P - P_.R (P_RR)^-1 P_R.

so that the prices of successive removals add up exactly.  This is the optimal brain surgeon
(Hassibi and Stork 1993) on groups, as in ZipLM (Kurtic et al. 2023, arXiv 2302.04089).

The inputs of ``out_proj`` are the outputs of all heads side by side: a group is a head, or several
that go together.  Those of ``fc2`` are the units of a feed-forward block: a group is one unit.

We update ``M = W^T Delta W`` instead of W.  The changes of M and P are collected as factors and
applied for many groups at once, because P takes 32 MB at 2,048 units.

    M <- M - G^T (M_R. - M_RR G) - M_R.^T G,      P <- P - G^T P_R.,      G = (P_RR)^-1 P_R.

Shapes: ``W (d, n)``, ``C, P, M (n, n)``, ``Delta (d, d)``, ``G (size, n)``; n inputs in groups of
``size``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

#: Removed inputs are dropped from the matrices when fewer than this share is left.
COMPACT = 0.75
#: Rows of factors that are kept before a matrix is changed.
DELAY = 64


class _Changing:
    """A symmetric matrix ``(n, n)``, and a change ``left^T right`` that is still to be subtracted.

    Args:
        size: inputs per group; :attr:`diagonal (n / size, size, size)`, with the square of each
            group, is up to date.
    """

    def __init__(self, matrix: Tensor, size: int):
        n, rows = len(matrix), max(DELAY, 2 * size)
        self.matrix, self.used = matrix, 0
        self.left, self.right = matrix.new_empty(rows, n), matrix.new_empty(rows, n)
        shape = n // size, size
        self.diagonal = (
            matrix.view(*shape, *shape).diagonal(dim1=0, dim2=2).permute(2, 0, 1).clone()
        )

    def rows(self, rows: slice) -> Tensor:
        """Some rows ``(size, n)``, up to date."""
        left, right = self.left[: self.used, rows], self.right[: self.used]
        return torch.addmm(self.matrix[rows], left.T, right, alpha=-1)

    def subtract(self, left: Tensor, right: Tensor) -> None:
        """Subtract ``left^T right``, of ``(size, n)`` both."""
        if self.used + len(left) > len(self.left):
            self.finish()
        at = slice(self.used, self.used + len(left))
        self.left[at], self.right[at] = left, right
        self.used += len(left)
        if len(left) == 1:
            self.diagonal.view(-1).addcmul_(left[0], right[0], value=-1)
        else:
            left, right = (
                x.unflatten(1, self.diagonal.shape[:2]).transpose(0, 1) for x in (left, right)
            )
            self.diagonal -= left.mT @ right

    def finish(self) -> None:
        """Bring the matrix up to date."""
        self.matrix.addmm_(self.left[: self.used].T, self.right[: self.used], alpha=-1)
        self.used = 0


def group_removals(
    weight: Tensor,
    covariance: Tensor,
    output_fisher: Tensor,
    size: int = 1,
) -> Iterator[tuple[float, int]]:
    """Yield all groups in order of removal, always the cheapest remaining: its price and its index.

    Args:
        covariance: covariance of the inputs, which must be invertible.
        size: number of inputs per group.
    """
    p = _Changing(covariance.inverse(), size)
    m = _Changing(weight.T @ output_fisher @ weight, size)
    groups = list(range(weight.size(1) // size))  # those in the matrices
    gone = torch.zeros(len(groups), dtype=torch.bool, device=weight.device)
    number = 0  # of those gone
    while number < len(groups):
        rises = _prices(m.diagonal, p.diagonal).masked_fill_(gone, math.inf)
        index = int(rises.argmin())
        yield float(rises[index]), groups[index]
        gone[index], number = True, number + 1
        rows = slice(index * size, (index + 1) * size)
        of_p, of_m = p.rows(rows), m.rows(rows)
        gain = of_p[:, rows].inverse() @ of_p
        p.subtract(gain, of_p)
        m.subtract(gain, of_m - of_m[:, rows] @ gain)
        m.subtract(of_m, gain)
        p.diagonal[index] = p.matrix.new_ones(size).diag()  # the price of what is gone stays finite
        if len(groups) - number < COMPACT * len(groups):
            left = (~gone).nonzero().flatten().tolist()
            inputs = [i * size + j for i in left for j in range(size)]
            p, m = (_compact(x, inputs, size) for x in (p, m))
            groups, gone, number = [groups[i] for i in left], gone.new_zeros(len(left)), 0


def _compact(changing: _Changing, inputs: list[int], size: int) -> _Changing:
    """The rows and columns of some inputs alone."""
    changing.finish()
    return _Changing(changing.matrix[inputs][:, inputs], size)


def prices(weight: Tensor, covariance: Tensor, output_fisher: Tensor, size: int = 1) -> list[float]:
    """The price of removing each group while the others stay, in bits per target token."""
    matrices = weight.T @ output_fisher @ weight, covariance.inverse()
    return [float(price) for price in _prices(*(_Changing(x, size).diagonal for x in matrices))]


def _prices(m: Tensor, p: Tensor) -> Tensor:
    """``(n / size,)``, of the squares ``(n / size, size, size)`` of the groups in M and P."""
    if m.size(1) == 1:
        return (m / p).flatten() / 2 / math.log(2)
    return (m * p.inverse()).sum((1, 2)) / 2 / math.log(2)
