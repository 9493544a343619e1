"""The few numbers of a token from which heads make their keys and values again.

Heads make ``y W_i^T`` of an input ``y``; an error in it costs what its reader makes of it:

    cost(W') = sum_i || L_i (W_i - W'_i) Cy^1/2 ||_F^2

Keys are read by queries ``q_i = x Wq_i^T + bq_i``, values by the output projection, and the cost is
the mean squared error of the centred scores, or of the heads' outputs:

    L_i^T L_i = E q_i^T q_i  (keys),      L_i^T L_i = Wo_i^T Wo_i  (values),      Cy = Cov y

With ``W'_i = B_i C``, where ``C y`` are ``r`` numbers that are kept of a token for all heads, the
least cost is that of a truncated singular value decomposition (Eckart and Young 1936) of all heads'
rows below each other:

    [L_1 W_1; ...; L_H W_H] Cy^1/2 = U S V^T,      C = V_r^T Cy^-1/2,      B_i = W_i Cy^1/2 V_r

Exact from the rows' joint rank on, which is ``d_y`` at most.

Shapes: ``W_i (h, d_y)``, ``L_i (h, h)``, ``B_i (h, r)``, ``C (r, d_y)``, ``Wo_i (d, h)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_collab.convert.factorise import RIDGE, root, unwhiten, whiten


@dataclass(frozen=True)
class Projections:
    """What heads make of an input, and what an error in it costs.

    Attributes:
        weights: ``W (H, h, d_y)``.
        importance: ``L (H, h, h)``.
        metric: ``Cy^1/2 (d_y, d_y)``; None for ones.
    """

    weights: Tensor
    importance: Tensor
    metric: Tensor | None = None

    @classmethod
    def read_with(cls, weights: Tensor, gram: Tensor, metric: Tensor | None) -> Projections:
        """Those whose ``L_i^T L_i`` is ``gram (H, h, h)``, with the ``metric`` ``Cy``."""
        importance = torch.stack([root(one) for one in gram])
        return cls(weights, importance, None if metric is None else root(metric, RIDGE))

    def rows(self, weights: Tensor | None = None) -> Tensor:
        """``L_i W_i Cy^1/2`` of all heads, ``(H h, d_y)``; also of other weights."""
        own = self.weights if weights is None else weights
        return whiten((self.importance @ own).flatten(0, 1), self.metric)

    def relative_error(self, weights: Tensor) -> float:
        """Root of the cost of other weights ``(H, h, d_y)``, over that of zeros."""
        whole = torch.linalg.vector_norm(self.rows())
        lost = torch.linalg.vector_norm(self.rows(self.weights - weights))
        return float(lost / whole) if whole else 0.0

    def __getitem__(self, heads: Sequence[int]) -> Projections:
        """Some of the heads."""
        chosen = list(heads)
        return Projections(self.weights[chosen], self.importance[chosen], self.metric)


def shared_directions(rows: Tensor, size: int) -> Tensor:
    """``V_r^T (r, d_y)``: the directions in which the rows ``(N, d_y)`` are longest."""
    _, _, right = torch.linalg.svd(rows, full_matrices=size > len(rows))
    return right[:size]


def down_and_up(
    directions: Tensor, weights: Tensor, metric: Tensor | None
) -> tuple[Tensor, Tensor]:
    """``C (r, d_y)`` and ``B (H, h, r)`` of heads' weights ``(H, h, d_y)``."""
    return unwhiten(directions, metric), whiten(weights, metric) @ directions.T


def balance(down: Tensor, up: Tensor) -> Tensor:
    """Factors ``f (r)`` with which entries of ``f down`` and ``up / f``, the same map, are alike.

    So further training starts from weights as those of a fresh model: none is out of scale.

    Args:
        down: ``(r, d_y)``, a row for each number that is kept of a token.
        up: ``(r, n)``, what reads it.
    """
    own, read = (part.square().mean(1).sqrt() for part in (down, up))
    scale = (read / own.clamp_min(torch.finfo(own.dtype).tiny)).sqrt()
    return torch.where(scale > 0, scale, torch.ones_like(scale))
