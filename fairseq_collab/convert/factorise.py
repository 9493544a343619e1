"""Factorise the score maps of trained heads into shared projections and a mixing matrix.

    A_i = Wq_i^T Wk_i  ~  Wq~^T diag(m_i) Wk~,     i = 1..H

Cordonnier, Loukas, Jaggi 2020, arXiv 2006.16362, re-parametrisation of trained heads: a CP
(PARAFAC) decomposition of the ``H x d x d_y`` stack of the ``A_i``.  Here it can be made for
*scores* in place of weights.  With inputs ``x``, ``y`` of covariances ``Cx`` and ``Cy``, the mean
squared error of the centred scores is

    E [(x - E x) (A_i - A~_i) (y - E y)^T]^2  =  || Cx^1/2 (A_i - A~_i) Cy^1/2 ||_F^2

so that the slices ``(Cx^1/2 Wq_i^T)(Wk_i Cy^1/2)`` are factorised, and the factors multiplied with
the inverse roots.  Covariances, not raw second moments: what a score owes to ``E y`` is the same
for all keys, which the softmax ignores, and what it owes to ``E x`` depends on head and key alone,
which a content bias takes up exactly (:func:`mean_correction`).

The slices have rank ``h``, and are never multiplied out.  Compressed bases (a truncated
higher-order SVD) make them small; the start is the best ``K`` of all heads' own singular directions
("blocks": each belongs to one head), or ``K`` directions that all heads share, if that is better,
or of heads that share already the largest of theirs; :mod:`.levenberg` goes on from there.

Shapes: ``Wq (H, h, d)``, ``Wk (H, h, d_y)``, ``Wq~ (K, d)``, ``Wk~ (K, d_y)``, ``M (H, K)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_collab.convert.levenberg import (
    Slices,
    Terms,
    minimise,
    relative_error,
)

#: Share of the mean eigenvalue that is added to all of a metric: in directions that calibration
#: sentences hardly show, factors must not come out arbitrarily large.
RIDGE = 1e-3
#: The compressed bases may leave out this share of the energy that the start leaves out.
TRUNCATION = 1e-2
#: Steps of the optimiser, unless told otherwise.
MAX_STEPS = 60
#: Restarts begin with a mixing matrix disturbed by this much of its largest entry.
NOISE = 0.1


@dataclass(frozen=True)
class Factors:
    """Shared projections and mixing, and how well they fit.

    Attributes:
        query, key: ``Wq~ (K, d)`` and ``Wk~ (K, d_y)``.
        mixing: ``M (H, K)``.
        error: relative error, the norm of what is lost over the norm of all, in the problem's
            metrics; 0 is exact.
        start_error: that of the start; None where it was random.
        steps: of the optimiser, over all restarts.
    """

    query: Tensor
    key: Tensor
    mixing: Tensor
    error: float
    start_error: float | None
    steps: int


class Problem:
    """The heads of one attention, whitened: what every key dimension has in common.

    Args:
        wq, wk: the heads' weights ``(H, h, d)`` and ``(H, h, d_y)``.
        query_metric, key_metric: ``Cx (d, d)`` and ``Cy (d_y, d_y)``, symmetric and positive
            semi-definite; without them weights are approximated, not scores.
        own: of heads that share already, ``Wq~ (K, d)``, ``Wk~ (K, d_y)`` and ``M (H, K)``: exact
            with ``K`` dimensions, and a start with fewer.
    """

    def __init__(
        self,
        wq: Tensor,
        wk: Tensor,
        query_metric: Tensor | None = None,
        key_metric: Tensor | None = None,
        own: tuple[Tensor, Tensor, Tensor] | None = None,
    ):
        self.wq, self.wk = wq.double(), wk.double()
        self.heads, self.head_size = wq.shape[:2]
        self.query_root, self.key_root = (
            None if metric is None else root(metric.to(self.wq), RIDGE)
            for metric in (query_metric, key_metric)
        )
        p = whiten(self.wq, self.query_root).mT  # (H, d, h)
        q = whiten(self.wk, self.key_root).mT  # (H, d_y, h)
        self.slices = Slices(p, q)
        self.values, self.left, self.right = _head_svds(self.slices)
        self.own = own

    @property
    def largest_key_dim(self) -> int:
        """``H h``, or ``K`` of heads that share already: so many shared dimensions are exact."""
        return self.heads * self.head_size if self.own is None else len(self.own[0])

    def block_start(self, key_dim: int) -> Terms:
        """The best ``key_dim`` singular directions of all heads, each owned by its head."""
        best = self.values.flatten().argsort(descending=True, stable=True)[:key_dim]  # (K)
        each = self.values.size(1)  # min(h, d)
        owner, place = best // each, best % each
        root = self.values[owner, place].sqrt().unsqueeze(1)
        u = self.left[owner, :, place] * root  # (K, d)
        v = self.right[owner, :, place] * root  # (K, d_y)
        n = torch.nn.functional.one_hot(owner, self.heads).to(u)  # (K, H)
        return Terms(u, v, n)

    def shared_start(self, key_dim: int) -> Terms:
        """The ``key_dim`` directions that all heads' queries use most, each with one key.

        In direction ``u_k`` head i wants the key ``u_k T_i``; the best one for all heads is the
        first singular vector of the stacked keys ``(H, d_y)``.  Exact where heads are alike.
        """
        _, vectors = torch.linalg.eigh(_gram(self, "query"))  # ascending
        u = vectors.T[-key_dim:]  # (K, d)
        keys = ((u @ self.slices.p) @ self.slices.q.mT).transpose(0, 1)  # (K, H, d_y)
        _, mixing = torch.linalg.eigh(keys @ keys.mT)  # (K, H, H)
        n = mixing[:, :, -1]  # (K, H)
        return Terms(u, (n.unsqueeze(1) @ keys).squeeze(1), n)

    def own_start(self, key_dim: int) -> Terms:
        """Of dimensions that heads share already, those that make the largest scores."""
        assert self.own is not None
        u = whiten(self.own[0], self.query_root)  # (K, d)
        v = whiten(self.own[1], self.key_root)  # (K, d_y)
        n = self.own[2].T  # (K, H)
        energy = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in (u, v, n)]).prod(0)
        best = energy.topk(key_dim).indices
        return Terms(u[best], v[best], n[best])

    def start(self, key_dim: int, blocks: bool = False) -> Terms:
        """The best of the starts, or of blocks alone.

        Of heads larger than the inputs some have fewer dimensions: the others are zeros.
        """
        starts = [self.block_start(key_dim)]
        if not blocks:
            starts.append(self.shared_start(key_dim))
            if self.own is not None:
                starts.append(self.own_start(key_dim))
        best = min(starts, key=lambda terms: relative_error(self.slices, terms))
        missing = key_dim - len(best.u)
        return Terms(*(torch.nn.functional.pad(part, (0, 0, 0, missing)) for part in best))


def factorise(
    problem: Problem,
    key_dim: int,
    *,
    max_steps: int = MAX_STEPS,
    restarts: int = 0,
    seed: int = 1,
    blocks: bool = False,
) -> Factors:
    """The best shared projections of size ``key_dim``, from 1 to ``H h``, that are found.

    With ``key_dim = H h`` they are the heads' own weights, copied, with ones in the mixing: exact.

    Args:
        max_steps: of the optimiser; 0 leaves the start as it is.
        restarts: further searches, from disturbed starts; the best result of all is kept.
        seed: of the disturbances.
        blocks: start with dimensions that each belong to one head, even if others lose less.
    """
    if key_dim == problem.largest_key_dim:
        return copied(problem)
    if not problem.slices.energy():  # heads that score nothing
        whole = copied(problem)
        parts = (whole.query[:key_dim], whole.key[:key_dim], whole.mixing[:, :key_dim])
        query, key, mixing = map(torch.zeros_like, parts)
        return Factors(query, key, mixing, error=0.0, start_error=0.0, steps=0)
    start = problem.start(key_dim, blocks)
    start_error = relative_error(problem.slices, start)
    left, right = _bases(problem, start_error)
    core = Slices(left.T @ problem.slices.p, right.T @ problem.slices.q)
    small = Terms(start.u @ left, start.v @ right, start.n)
    generator = torch.Generator().manual_seed(seed)
    starts = [small, *(_disturbed(small, generator) for _ in range(restarts))]
    found = [minimise(core, one, max_steps) for one in starts]
    best, _ = min(found, key=lambda one: one[1][-1])
    terms = Terms(best.u @ left.T, best.v @ right.T, best.n)
    return Factors(
        query=unwhiten(terms.u, problem.query_root),
        key=unwhiten(terms.v, problem.key_root),
        mixing=terms.n.T.contiguous(),
        error=relative_error(problem.slices, terms),
        start_error=start_error,
        steps=sum(len(errors) - 1 for _, errors in found),
    )


def copied(problem: Problem) -> Factors:
    """The heads' own weights: exact.  One block of dimensions a head, unless they share already."""
    if problem.own is not None:
        return Factors(*problem.own, error=0.0, start_error=0.0, steps=0)
    owner = torch.arange(problem.largest_key_dim) // problem.head_size
    mixing = torch.nn.functional.one_hot(owner, problem.heads).T  # (H, K)
    query, key = problem.wq.flatten(0, 1), problem.wk.flatten(0, 1)
    return Factors(query, key, mixing.to(query), error=0.0, start_error=0.0, steps=0)


def mean_correction(problem: Problem, factors: Factors, query_mean: Tensor) -> Tensor:
    """``E x (A_i - A~_i)`` of each head: ``(H, d_y)``, to be added to the content biases.

    This is the part of the lost scores that is the same for all queries.  Zero at ``K = H h``.
    """
    mean = query_mean.double()
    exact = torch.einsum("hkd,d,hke->he", problem.wq, mean, problem.wk)  # (H, d_y)
    kept = (factors.mixing * (factors.query @ mean)) @ factors.key
    return exact - kept


def within_keys(problem: Problem, factors: Factors, content: Tensor) -> Tensor:
    """The nearest content biases ``(H, d_y)``, in the keys' metric, that combine shared keys.

    Those are what ordinary heads of size ``K`` can have, as the query bias of a head.
    """
    keys = whiten(factors.key, problem.key_root)  # (K, d_y)
    wanted = whiten(content, problem.key_root)  # (H, d_y)
    combination = torch.linalg.lstsq(keys.T, wanted.T).solution  # (K, H)
    return combination.T @ factors.key


def relative_error_of(problem: Problem, factors: Factors) -> float:
    """Relative error of factors in the metrics of ``problem``, for which they need not be made."""
    u = whiten(factors.query, problem.query_root)
    v = whiten(factors.key, problem.key_root)
    return relative_error(problem.slices, Terms(u, v, factors.mixing.T))


def root(matrix: Tensor, ridge: float = 0.0) -> Tensor:
    """The symmetric root of a symmetric, positive semi-definite matrix ``(d, d)``.

    Args:
        ridge: share of the mean eigenvalue that is added to all.
    """
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp_min(0)
    return (vectors * (values + ridge * values.mean()).sqrt()) @ vectors.T


def whiten(weights: Tensor, root: Tensor | None) -> Tensor:
    """Weights ``(..., d_y)`` in the metric whose root ``(d_y, d_y)`` is given; None for ones."""
    return weights if root is None else weights @ root


def unwhiten(factor: Tensor, root: Tensor | None) -> Tensor:
    """A factor ``(r, d_y)`` of whitened weights as one of the weights."""
    return factor if root is None else torch.linalg.solve(root, factor.T).T.contiguous()


def _head_svds(slices: Slices) -> tuple[Tensor, Tensor, Tensor]:
    """Of each ``P_i Q_i^T``: values ``(H, h)``, left ``(H, d, h)`` and right ``(H, d_y, h)``.

    By QR of both sides, so that only ``h x h`` matrices are decomposed.
    """
    left, upper = torch.linalg.qr(slices.p)
    right, other = torch.linalg.qr(slices.q)
    u, values, vt = torch.linalg.svd(upper @ other.mT)
    return values, left @ u, right @ vt.mT


def _gram(problem: Problem, side: str) -> Tensor:
    """``sum_i T_i T_i^T`` (query side) or ``sum_i T_i^T T_i`` of the whitened slices ``T_i``."""
    p, q = problem.slices if side == "query" else (problem.slices.q, problem.slices.p)
    return (p @ (q.mT @ q) @ p.mT).sum(0)


def _bases(problem: Problem, start_error: float) -> tuple[Tensor, Tensor]:
    """Orthonormal bases ``(d, p)`` and ``(d_y, q)`` that hold all that matters of the slices."""
    spare = TRUNCATION * start_error**2 * float(problem.slices.energy()) / 2
    bases = []
    for side in ("query", "key"):
        values, vectors = torch.linalg.eigh(_gram(problem, side))  # ascending
        dropped = int((values.clamp_min(0).cumsum(0) <= spare).sum())
        bases.append(vectors[:, dropped:])
    return bases[0], bases[1]


def _disturbed(terms: Terms, generator: torch.Generator) -> Terms:
    noise = torch.randn(terms.n.shape, generator=generator, dtype=terms.n.dtype).to(terms.n.device)
    return terms._replace(n=terms.n + NOISE * float(terms.n.max()) * noise)
