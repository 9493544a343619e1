"""Shared queries and keys, and separate narrow keys, in closed form or by least squares.

With ``G`` the mean of all ``Gamma_i`` (:mod:`collab_lab.statistics.moments`) and
``S_i = X^1/2 A_i B_i^T G^1/2``:

    full      U^T S_i V: shared query and key, mixed by a matrix per head.  Higher-order SVD with
              alternating sweeps (De Lathauwer et al. 2000); then the best mixing in each metric.
    diagonal  S'_i = U diag(m_i) V^T: a CP decomposition, which has no closed form.  It starts from
              the K largest singular directions of all S_i, each used by the head that it comes from
              (m_i is its singular value, or 0), and solves for U, V and M in turn by least squares.
    separate  the K/H largest singular directions of each X^1/2 A_i B_i^T Gamma_i^1/2.

Full mixing is exact once K reaches the rank of all maps together, diagonal mixing and separate keys
once K reaches the sum of the ranks of the heads.

Shapes: ``A (H, d + 1, e)``, ``B (H, d_y, e)``, ``S (H, d + 1, d_y)``, ``U (d + 1, K)``,
``V (d_y, K)``, ``M (H, K, K)``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from collab_lab.mathematics.shared_projection import (
    Shared,
    WeightedMaps,
    root,
    top_eigenvectors,
)
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import HeadMaps

#: Alternating sweeps of full and of diagonal mixing.
SWEEPS, DIAGONAL_SWEEPS = 4, 30


def whitened(maps: HeadMaps, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``X^1/2 A`` and ``G^1/2 B``, whose products are ``S_i``; ``X^-1/2`` and ``G^-1/2``."""
    x, x_inverse = root(statistics.query_moment)
    y, y_inverse = root(statistics.key_fisher.mean(0))
    return x @ maps.queries, y @ maps.keys, x_inverse, y_inverse


def full(maps: HeadMaps, statistics: Statistics, size: int) -> Shared:
    """A shared query and key of width ``size``; each head mixes the query by its own matrix."""
    left, right, x_inverse, y_inverse = whitened(maps, statistics)
    gram = left.mT @ left  # (H, e, e): of the directions that queries retain, all at first
    for _ in range(SWEEPS):
        v = top_eigenvectors((right @ gram @ right.mT).sum(0), size)  # (d_y, K)
        projected = right.mT @ v  # (H, e, K)
        of_keys = projected @ projected.mT
        u = top_eigenvectors((left @ of_keys @ left.mT).sum(0), size)  # (d + 1, K)
        retained = left.mT @ u
        gram = retained @ retained.mT
    key = y_inverse @ v
    mixing = (u.T @ left) @ WeightedMaps.keys(maps, statistics).refitted(key).mT  # (H, K, K)
    return Shared(x_inverse @ u, mixing, key)


def diagonal(maps: HeadMaps, statistics: Statistics, size: int) -> Shared:
    """A shared query and key of width ``size``; each head scales the query by its own vector."""
    left, right, x_inverse, y_inverse = whitened(maps, statistics)
    singular_values, u, v = singular(left, right)  # (H, n), (H, d + 1, n), (H, d_y, n)
    if size == singular_values.numel():
        return separate_as_shared(maps, statistics, size)  # exact
    best = singular_values.flatten().argsort(descending=True, stable=True)[:size]  # (K)
    owner, index = best // singular_values.size(1), best % singular_values.size(1)
    u, v = u[owner, :, index].T, v[owner, :, index].T  # (d + 1, K), (d_y, K)
    m = torch.zeros(len(singular_values), len(best)).to(singular_values)  # (H, K)
    m[owner, torch.arange(len(best))] = singular_values[owner, index]
    u, m, v = _least_squares(left, right, u, m, v)
    shared = Shared(x_inverse @ u, m, y_inverse @ v)
    missing = (0, size - len(best))
    return Shared(*(functional.pad(factor, missing) for factor in shared))


def _least_squares(
    left: Tensor, right: Tensor, u: Tensor, m: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """``U``, ``M`` and ``V`` in turn, each the best for the other two; U and V of length 1.

    A sweep starts beyond the last one, in the direction from the sweep before it, and from the best
    so far where that loses (Mitchell, Ye and De Sterck 2020): 20 sweeps do the work of 60.
    """
    best, most, step = (u, m, v), 0.0, 0.0
    for _ in range(DIAGONAL_SWEEPS):
        u = _solved(_read(left, right.mT @ v, m), (v.T @ v) * (m.T @ m))
        u = functional.normalize(u, dim=0)
        queries = left.mT @ u  # (H, e, K)
        v = _solved(_read(right, queries, m), (u.T @ u) * (m.T @ m))
        v = functional.normalize(v, dim=0)
        coefficients = (queries * (right.mT @ v)).sum(1)  # (H, K)
        m = _solved(coefficients, (u.T @ u) * (v.T @ v))
        explained = float((coefficients * m).sum())
        if explained < most:
            (u, m, v), step = best, 0.0
            continue
        before, best, most = best, (u, m, v), explained
        m, v = m + step * (m - before[1]), v + step * (v - before[2])
        step = min(1.2 * step, 5.0) if step else 0.5
    return best


def _read(maps: Tensor, projected: Tensor, m: Tensor) -> Tensor:
    """``sum_i maps_i projected_i diag(m_i)``: ``(H, n, e), (H, e, K), (H, K) -> (n, K)``."""
    return (maps @ (projected * m.unsqueeze(1))).sum(0)


def _solved(target: Tensor, gram: Tensor) -> Tensor:
    """``target gram^-1 (n, K)``; a relative ridge of 1e-9 keeps duplicate columns invertible."""
    more = (1e-9 * gram.diagonal()).clamp_min(torch.finfo(gram.dtype).tiny)
    return torch.cholesky_solve(target.T, torch.linalg.cholesky(gram + more.diag())).T


def separate_keys(maps: HeadMaps, statistics: Statistics, size: int) -> tuple[Tensor, Tensor]:
    """The best queries ``(H, d + 1, k)`` and keys ``(H, d_y, k)`` of ``size`` k for each head."""
    if size == maps.keys.size(2):
        return maps.queries, maps.keys  # exact
    (x, x_inverse), (y, y_inverse) = root(statistics.query_moment), root(statistics.key_fisher)
    singular_values, u, v = singular(x @ maps.queries, y @ maps.keys)
    length = singular_values[:, None, :size].sqrt()  # (H, 1, k)
    missing = (0, size - length.size(2))
    queries, keys = x_inverse @ (u[..., :size] * length), y_inverse @ (v[..., :size] * length)
    return functional.pad(queries, missing), functional.pad(keys, missing)


def separate_as_shared(maps: HeadMaps, statistics: Statistics, size: int) -> Shared:
    """Separate keys in the form of shared keys: each head mixes only its own dimensions."""
    queries, keys = separate_keys(maps, statistics, size // len(maps.queries))  # (H, ., k)
    mixing = torch.eye(len(queries)).to(keys).repeat_interleave(keys.size(2), 1)  # (H, K)
    query, key = (maps.transpose(0, 1).flatten(1) for maps in (queries, keys))
    return Shared(query, mixing, key)


def singular(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular values ``(H, n)`` and vectors of ``left (H, a, e) right^T (H, e, b)``.

    It first takes the QR of both factors, so that only small matrices are decomposed.
    """
    (left, left_upper), (right, right_upper) = torch.linalg.qr(left), torch.linalg.qr(right)
    u, singular_values, vt = torch.linalg.svd(left_upper @ right_upper.mT, full_matrices=False)
    return singular_values, left @ u, right @ vt.mT


#: Shared keys that L-BFGS does not improve, by query mixing; separate: separate keys in this form.
BY_MIXING = {"diagonal": diagonal, "full": full, "separate": separate_as_shared}
