"""The best narrow keys of trained heads: eigenproblems, and least squares in turn.

The scores of head i are ``[x 1] A_i B_i^T y^T``.  With second moments ``X = E [x 1]^T [x 1]`` of
real queries and the covariance ``Y`` of real keys within a sentence (what all keys of a sentence
have in common, the softmax ignores), other maps ``A'_i``, ``B'_i`` lose on average

    cost = sum_i || X^1/2 (A_i B_i^T - A'_i B'_i^T) Y^1/2 ||_F^2 = sum_i || S_i - S'_i ||_F^2

The best maps of each kind are singular directions of ``S_i = X^1/2 A_i B_i^T Y^1/2``:

    own       S'_i = S_i V V^T: one key of width K for all heads.  V: the K largest eigenvectors of
              sum_i S_i^T S_i.  The least cost of any shared key of width K.
    full      S'_i = U U^T S_i V V^T: one query of width K, too.  U: the K largest eigenvectors of
              sum_i S_i V V^T S_i^T; then V again for this U, and so on (higher-order SVD with
              alternating sweeps, De Lathauwer et al. 2000).
    diagonal  S'_i = U diag(m_i) V^T: a CP decomposition, which has no closed form.  It starts from
              the K largest singular directions of all S_i, each used by the head that it comes from
              (m_i is its singular value, or 0), and solves for U, V and M in turn by least squares.
    separate  S'_i: the K/H largest singular directions of each head (Eckart and Young 1936).

    groups    own, with the width of a head, for the heads of each group; of values, see
              :func:`.grouped_values`.

    latent    y C, from which all keys and values come.  With T_i = Z^1/2 V_i Wo_i^T for the values
              (Z: covariance of their inputs), C are the r largest directions of all S_i and T_i,
              each of the two divided by its own energy, both in the metric Z.  A latent of
              r = K + V numbers contains every key of width K next to every value of width V, so
              that two narrower projections are never better at an equal cache.

``V`` gives the keys ``y Y^-1/2 V``, and so on.  All are exact once K reaches the rank of the maps.

Shapes: ``A (H, d + 1, e)``, ``B (H, d_y, e)``, ``S (H, d + 1, d_y)``, ``U (d + 1, K)``,
``V (d_y, K)``, ``M (H, K, K)``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_collab.trained.attentions import HeadMaps

#: Share of the mean eigenvalue that is added to all of a metric: in directions that calibration
#: sentences hardly show, maps must not come out arbitrarily large.
RIDGE = 1e-3
#: Alternating sweeps of full and of diagonal mixing.
SWEEPS, DIAGONAL_SWEEPS = 4, 30


class Roots(NamedTuple):
    """``X^1/2 (d + 1, d + 1)``, ``Y^1/2 (d_y, d_y)`` and their inverses."""

    query: Tensor
    key: Tensor
    query_inverse: Tensor
    key_inverse: Tensor

    @classmethod
    def of(cls, query: Tensor, key: Tensor) -> Roots:
        """Of the metrics ``X`` and ``Y``."""
        (x, x_inverse), (y, y_inverse) = root(query), root(key)
        return cls(x, y, x_inverse, y_inverse)

    @classmethod
    def ones(cls, heads: HeadMaps) -> Roots:
        """Those with which weights are approximated, whatever the inputs are."""
        x, y = (torch.eye(part.size(1)).to(part) for part in (heads.queries, heads.keys))
        return cls(x, y, x, y)


class Shared(NamedTuple):
    """``A'_i = query M_i`` (or the queries of each head), and the shared key.

    Shapes: ``query (d + 1, K)``, ``mixing (H, K, K)``, or ``(H, K)`` where it is diagonal; with own
    queries ``query (H, d + 1, K)`` and no mixing.  ``key (d_y, K)``.
    """

    query: Tensor
    mixing: Tensor | None
    key: Tensor

    def queries(self) -> Tensor:
        """``A' (H, d + 1, K)``."""
        if self.mixing is None:
            return self.query
        if self.mixing.dim() == 2:
            return self.query * self.mixing.unsqueeze(1)
        return self.query @ self.mixing


def root(metric: Tensor) -> tuple[Tensor, Tensor]:
    """The root of a symmetric, positive semi-definite matrix ``(n, n)``, and its inverse."""
    values, vectors = torch.linalg.eigh(metric)
    values = values.clamp_min(0)
    values = values + RIDGE * values.mean().clamp_min(torch.finfo(values.dtype).tiny)
    return (vectors * values**0.5) @ vectors.T, (vectors * values**-0.5) @ vectors.T


def whitened(heads: HeadMaps, roots: Roots) -> tuple[Tensor, Tensor]:
    """``X^1/2 A (H, d + 1, e)`` and ``Y^1/2 B (H, d_y, e)``, whose products are ``S_i``."""
    return roots.query @ heads.queries, roots.key @ heads.keys


def largest(gram: Tensor, size: int) -> Tensor:
    """The ``size`` eigenvectors of the largest eigenvalues: ``(..., n, n) -> (..., n, size)``.

    Filled up with zeros for ``size > n``.
    """
    vectors = torch.linalg.eigh(gram)[1].flip(-1)[..., :size]
    return torch.nn.functional.pad(vectors, (0, size - vectors.size(-1)))


def own(heads: HeadMaps, roots: Roots, size: int) -> Shared:
    """The best shared key of width ``size``, queries free."""
    left, right = whitened(heads, roots)
    v = largest((right @ (left.mT @ left) @ right.mT).sum(0), size)  # (d_y, K)
    return _balanced(Shared(heads.queries @ (right.mT @ v), None, roots.key_inverse @ v))


def full(heads: HeadMaps, roots: Roots, size: int) -> Shared:
    """The best shared key and shared query of width ``size``, mixed by a matrix per head."""
    left, right = whitened(heads, roots)
    read = left.mT @ left  # (H, e, e): of the directions that queries keep, all at first
    for _ in range(SWEEPS):
        v = largest((right @ read @ right.mT).sum(0), size)  # (d_y, K)
        seen = right.mT @ v  # (H, e, K)
        u = largest((left @ (seen @ seen.mT) @ left.mT).sum(0), size)  # (d + 1, K)
        kept = left.mT @ u
        read = kept @ kept.mT
    return _balanced(
        Shared(roots.query_inverse @ u, (u.T @ left) @ (right.mT @ v), roots.key_inverse @ v)
    )


def diagonal(heads: HeadMaps, roots: Roots, size: int) -> Shared:
    """A shared key and query of width ``size``, scaled by each head."""
    values, left, right = singular(heads, roots)  # (H, n), (H, d + 1, n), (H, d_y, n)
    if size == values.numel():
        return blocks(heads, roots, size)  # exact
    best = values.flatten().argsort(descending=True, stable=True)[:size]  # (K)
    owner, place = best // values.size(1), best % values.size(1)
    u, v = left[owner, :, place].T, right[owner, :, place].T  # (d + 1, K), (d_y, K)
    m = torch.zeros(len(values), len(best)).to(values)  # (H, K)
    m[owner, torch.arange(len(best))] = values[owner, place]
    u, m, v = _least_squares(whitened(heads, roots), u, m, v)
    length = torch.linalg.vector_norm(m, dim=0) / m.size(0) ** 0.5  # (K)
    root = length.sqrt()
    query, key = roots.query_inverse @ (u * root), roots.key_inverse @ (v * root)
    mixing = m / length.clamp_min(torch.finfo(m.dtype).tiny)
    missing = (0, size - len(best))
    return Shared(*(torch.nn.functional.pad(part, missing) for part in (query, mixing, key)))


def _least_squares(
    whitened: tuple[Tensor, Tensor], u: Tensor, m: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """``U``, ``M`` and ``V`` in turn, each the best for the other two; U and V of length 1.

    A sweep starts beyond the last one, in the direction from the sweep before it, and from the best
    so far where that loses (Mitchell, Ye and De Sterck 2020): 20 sweeps do the work of 60.
    """
    left, right = (part.transpose(0, 1).flatten(1) for part in whitened)  # (d + 1, H e), (d_y, H e)

    def product(part: Tensor, by: Tensor) -> Tensor:
        return (part.T @ by).unflatten(0, (len(m), -1))  # (H, e, K)

    def spread(read: Tensor) -> Tensor:
        return (read * m.unsqueeze(1)).flatten(0, 1)  # (H e, K)

    best, most, step = (u, m, v), 0.0, 0.0
    for _ in range(DIAGONAL_SWEEPS):
        u = _solved(left @ spread(product(right, v)), (v.T @ v) * (m.T @ m))
        u = torch.nn.functional.normalize(u, dim=0)
        seen = product(left, u)
        v = _solved(right @ spread(seen), (u.T @ u) * (m.T @ m))
        v = torch.nn.functional.normalize(v, dim=0)
        both = (seen * product(right, v)).sum(1)  # (H, K)
        m = _solved(both, (u.T @ u) * (v.T @ v))
        explained = float((both * m).sum())
        if explained < most:
            (u, m, v), step = best, 0.0
            continue
        before, best, most = best, (u, m, v), explained
        m, v = m + step * (m - before[1]), v + step * (v - before[2])
        step = min(1.2 * step, 5.0) if step else 0.5
    return best


def _solved(target: Tensor, gram: Tensor) -> Tensor:
    """``target gram^-1 (n, K)``; a billionth more on the diagonal keeps equal columns apart."""
    more = (1e-9 * gram.diagonal()).clamp_min(torch.finfo(gram.dtype).tiny)
    return torch.cholesky_solve(target.T, torch.linalg.cholesky(gram + more.diag())).T


#: By the value of ``--query-mixing``.
SHARED = {"diagonal": diagonal, "full": full, "own": own}


def separate(heads: HeadMaps, roots: Roots, size: int) -> tuple[Tensor, Tensor]:
    """The best queries ``(H, d + 1, k)`` and keys ``(H, d_y, k)`` of ``size`` k for each head."""
    values, u, v = singular(heads, roots)
    length = values[:, None, :size].sqrt()  # (H, 1, k)
    missing = (0, size - length.size(2))
    queries = roots.query_inverse @ (u[..., :size] * length)
    keys = roots.key_inverse @ (v[..., :size] * length)
    return torch.nn.functional.pad(queries, missing), torch.nn.functional.pad(keys, missing)


def blocks(heads: HeadMaps, roots: Roots, size: int) -> Shared:
    """Separate keys in the form of shared ones: a head mixes its own dimensions alone."""
    queries, keys = separate(heads, roots, size // len(heads.queries))  # (H, ., k)
    mixing = torch.eye(len(queries)).to(keys).repeat_interleave(keys.size(2), 1)  # (H, K)
    query, key = (part.transpose(0, 1).flatten(1) for part in (queries, keys))
    return Shared(query, mixing, key)


def singular(heads: HeadMaps, roots: Roots) -> tuple[Tensor, Tensor, Tensor]:
    """Of each ``S_i``: values ``(H, n)``, left ``(H, d + 1, n)`` and right ``(H, d_y, n)`` vectors.

    By QR of both factors, so that only small matrices are decomposed.
    """
    (left, upper), (right, other) = (torch.linalg.qr(part) for part in whitened(heads, roots))
    u, values, vt = torch.linalg.svd(upper @ other.mT, full_matrices=False)
    return values, left @ u, right @ vt.mT


def relative_error(heads: HeadMaps, roots: Roots, queries: Tensor, keys: Tensor) -> float:
    """Root of the cost of other maps ``(H, d + 1, k)``, ``(G, d_y, k)``, over that of zeros.

    With the square roots of second moments: the root mean square error of the centred scores.
    """
    left, right = whitened(heads, roots)
    other = roots.query @ queries, (roots.key @ keys).expand(len(queries), -1, -1)

    def product(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> float:
        return float(((a[0].mT @ b[0]) * (a[1].mT @ b[1])).sum())

    whole = product((left, right), (left, right))
    lost = whole - 2 * product((left, right), other) + product(other, other)
    return (max(lost, 0.0) / whole) ** 0.5 if whole else 0.0


def _balanced(shared: Shared) -> Shared:
    """Scale queries and keys to equal sizes, without a change of the scores: a start for training.

    A row of own queries is as long as its key, on average over heads; full mixing matrices are as
    large as block mixing starts them.
    """
    query, mixing, key = shared
    if mixing is None:
        scale = equalising(query.square().mean((0, 1)), key.square().mean(0))  # (K)
        return Shared(query / scale, None, key * scale)
    size = torch.linalg.vector_norm(mixing) / mixing.size(1) ** 0.5
    size = size.clamp_min(torch.finfo(key.dtype).tiny)
    return Shared(query * size.sqrt(), mixing / size, key * size.sqrt())


def equalising(one: Tensor, other: Tensor) -> Tensor:
    """By how much to divide one map of a product, and multiply the other, to make both equal.

    Args:
        one, other: mean squares of the maps, by direction.
    """
    scale = (one / other.clamp_min(torch.finfo(one.dtype).tiny)) ** 0.25
    return torch.where(scale > 0, scale, 1.0)


def latents(
    heads: HeadMaps, roots: Roots, value_roots: tuple[Tensor, Tensor], size: int
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
    up = torch.cat([key_up, value_up], 2)  # (H, r, e + h_v)
    scale = equalising(up.square().mean((0, 2)), down.square().mean(0))  # (r)
    return down * scale, key_up / scale[:, None], value_up / scale[:, None]
