"""The best narrow projection that many heads share for their keys or values.

The scores of head i are ``[x 1] A_i B_i^T y^T``.  It adds ``z_i V_i Wo_i^T`` to the output, where
``z_i`` is what it reads.  With the statistics of :mod:`collab_lab.statistics.moments`, changes
``D_i`` of ``A_i B_i^T`` and ``F_i`` of ``V_i Wo_i^T`` have the price

    1/2 sum_i [ tr(D_i^T X D_i Gamma_i) + tr(F_i^T Z_i F_i Delta) ] / ln 2     bits per target token

This is the Fisher information of K-FAC (Martens and Grosse 2015), which assumes that inputs and
gradients, positions, heads and attentions are independent.  For one sentence, one query and one
head the price equals the second difference of the loss; for all heads at once the second difference
is 0.43 to 24 times the sum of their prices.

**A shared projection.**  Heads that share ``C (n, K)`` have keys ``y C``.  The maps ``(C^T Gamma_i
C)^-1 C^T Gamma_i B_i`` of least price then go into the queries; for values, with ``Z_i`` and
``V_i``, into the output projections.  ``C`` starts from the largest directions of all heads in a
pooled metric, and steps of L-BFGS improve it in every head's metric (:func:`shared_projection`):

    own      one key for all heads, a query for each; groups: one key for each group of heads
    values   one value for each group of heads, with an output projection for each
    latent   one map for the keys and the values of all heads.  A latent of r = K + V numbers
             contains every key of width K next to every value of width V.

All are exact once the width reaches the rank of the maps.

Shapes: ``A (H, d + 1, e)``, ``B (H, d_y, e)``, ``V (H, d_y, h_v)``, ``Wo (H, d, h_v)``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from collab_lab.statistics.gram import ridged
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import HeadMaps

#: Steps of L-BFGS.
STEPS = 60
#: Ratio of the ends of a Cholesky factor's diagonal below which a matrix counts as singular.
SINGULAR = 1e-6


class Shared(NamedTuple):
    """A shared query and key, and each head's mixing ``M_i``: ``A'_i = query M_i``.

    Shapes: ``query (d + 1, K)``, ``mixing (H, K, K)``, or ``(H, K)`` if it is diagonal;
    ``key (d_y, K)``.
    """

    query: Tensor
    mixing: Tensor
    key: Tensor

    def queries(self) -> Tensor:
        """The queries of all heads, ``A' (H, d + 1, K)``."""
        if self.mixing.dim() == 2:
            return self.query * self.mixing.unsqueeze(1)
        return self.query @ self.mixing


def root(metric: Tensor) -> tuple[Tensor, Tensor]:
    """The root of a symmetric, positive definite matrix ``(..., n, n)``, and its inverse."""
    values, vectors = torch.linalg.eigh(metric)
    values = values.clamp_min(torch.finfo(values.dtype).tiny).unsqueeze(-2).sqrt()
    return (vectors * values) @ vectors.mT, (vectors / values) @ vectors.mT


def top_eigenvectors(gram: Tensor, size: int) -> Tensor:
    """The ``size`` eigenvectors of the largest eigenvalues: ``(..., n, n) -> (..., n, size)``.

    Zeros fill up the rest if ``size > n``.
    """
    vectors = torch.linalg.eigh(gram)[1].flip(-1)[..., :size]
    return functional.pad(vectors, (0, size - vectors.size(-1)))


class WeightedMaps(NamedTuple):
    """Maps of heads that will share one projection, and the metrics that price a change of them.

    The price is ``tr((B - B')^T M (B - B') R)``, summed over heads: twice the loss in nats.

    Shapes: maps ``B (H, n, e)``; metric ``M (H, n, n)`` of their inputs; metric ``R (H, e, e)`` of
    their outputs.
    """

    maps: Tensor
    metric: Tensor
    output_metric: Tensor

    @classmethod
    def keys(cls, maps: HeadMaps, statistics: Statistics) -> WeightedMaps:
        used_for = maps.queries.mT @ statistics.query_moment @ maps.queries
        return cls(maps.keys, statistics.key_fisher, used_for)

    @classmethod
    def values(cls, maps: HeadMaps, statistics: Statistics) -> WeightedMaps:
        used_for = maps.out.mT @ statistics.output_fisher @ maps.out
        return cls(maps.values[:, :-1], statistics.value_covariance, used_for)

    def groups(self, number: int) -> list[WeightedMaps]:
        """The maps of ``number`` groups of neighbouring heads, one entry per group."""
        parts = zip(*(x.chunk(number) for x in self), strict=True)
        return [WeightedMaps(*part) for part in parts]

    def refitted(self, common: Tensor) -> Tensor:
        """The cheapest maps ``(H, K, e)`` of all heads after the projection ``common (n, K)``."""
        weighted = self.metric @ common  # (H, n, K)
        gram, read = common.mT @ weighted, weighted.mT @ self.maps
        lower, failed = torch.linalg.cholesky_ex(gram)
        diagonal = lower.diagonal(dim1=1, dim2=2)
        if failed.any() or (diagonal.amin(1) < SINGULAR * diagonal.amax(1)).any():
            return torch.linalg.pinv(gram, hermitian=True) @ read
        return torch.cholesky_solve(read, lower)


def shared_projection(
    sharing: Sequence[WeightedMaps], size: int, steps: int, directions: Tensor | None = None
) -> Tensor:
    """The projection ``C (n, size)`` that gives all heads of all maps the least price together.

    Args:
        sharing: maps that share the projection, such as keys and values.
        size: width of the projection.
        steps: number of L-BFGS steps.
        directions: result of :func:`all_directions`, if it is known.
    """
    common = first_projection(sharing, size, directions)
    if not steps or size >= len(common):
        return common
    # A head's gain is tr(Z^T C^T T) with Z = (C^T M C)^-1 C^T T and T = M B R^1/2.
    targets = [(one.metric, one.metric @ one.maps @ root(one.output_metric)[0]) for one in sharing]
    energies = ((one.maps.mT @ one.metric @ one.maps * one.output_metric).sum() for one in sharing)
    whole = sum(map(float, energies))
    if not whole:
        return common
    best, least = common.clone(), math.inf
    optimizer = torch.optim.LBFGS([common], max_iter=steps, line_search_fn="strong_wolfe")

    def relative_price() -> Tensor:
        nonlocal best, least
        gain, gradient = common.new_zeros(()), torch.zeros_like(common)
        for metric, target in targets:
            weighted, read = metric @ common, common.mT @ target  # (H, n, K), (H, K, e)
            lower = torch.linalg.cholesky(common.mT @ weighted)
            solved = torch.cholesky_solve(read, lower)  # Z
            gain += (read * solved).sum()
            # The gradient of the gain is 2 (T - M C Z) Z^T: autograd takes several times as long.
            rest = target - weighted @ solved  # (H, n, e)
            gradient += 2 * torch.einsum("hne,hke->nk", rest, solved)
        common.grad = -gradient / whole
        loss = 1 - gain / whole
        if loss.item() < least:
            best, least = common.clone(), loss.item()
        return loss

    # Where few sentences leave a metric almost singular, a step can leave the maps of full rank.
    with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        optimizer.step(relative_price)
    return best


def first_projection(
    sharing: Sequence[WeightedMaps], size: int, directions: Tensor | None = None
) -> Tensor:
    """The first ``size`` of :func:`all_directions`, filled up with zeros: ``(n, size)``."""
    directions = all_directions(sharing) if directions is None else directions
    first = directions[:, :size].contiguous()
    return functional.pad(first, (0, size - first.size(1)))


def all_directions(sharing: Sequence[WeightedMaps]) -> Tensor:
    """All directions ``(n, n)`` of all maps in one pooled metric, largest first.

    Each of the maps, such as the keys, gets an equal share of the metric and of the energy.
    """
    pooled = [one.metric.mean(0) for one in sharing]
    whole, inverse = root(torch.stack([metric / metric.trace() for metric in pooled]).sum(0))
    gram = torch.zeros_like(whole)
    for one in sharing:
        weighted = whole @ one.maps  # (H, n, e)
        energy = (weighted @ one.output_metric @ weighted.mT).sum(0)
        gram = gram + energy / energy.trace().clamp_min(torch.finfo(gram.dtype).tiny)
    return inverse @ top_eigenvectors(gram, len(gram))


@functools.lru_cache(maxsize=1)  # of the attention that is tried at many sizes
def _keys(maps: HeadMaps, statistics: Statistics) -> tuple[WeightedMaps, Tensor]:
    """The keys of all heads, and their :func:`all_directions`."""
    keys = WeightedMaps.keys(maps, statistics)
    return keys, all_directions([keys])


#: The maps and the statistics of an attention.
Measured = tuple[HeadMaps, Statistics]


@functools.lru_cache(maxsize=1)
def _keys_and_values(*every: Measured) -> tuple[list[WeightedMaps], list[WeightedMaps], Tensor]:
    """The keys and the values of each attention, and the common :func:`all_directions`."""
    keys, values = (
        [kind(*one) for one in every] for kind in (WeightedMaps.keys, WeightedMaps.values)
    )
    return keys, values, all_directions([*keys, *values])


def best_shared_key(
    maps: HeadMaps, statistics: Statistics, size: int, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """A query for each head ``(H, d + 1, size)``, and a shared key ``(d_y, size)``."""
    heads, directions = _keys(maps, statistics)
    key = shared_projection([heads], size, steps, directions)
    return balance(maps.queries @ heads.refitted(key).mT, key)


def grouped(
    heads: WeightedMaps, others: Tensor, groups: int, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """Replace the maps of each group of neighbouring heads by one map: ``(G, n, e)``.

    Args:
        heads: keys or values.
        others: queries ``(H, d + 1, e)`` or outputs ``(H, d, h_v)``, which are changed to
            compensate and returned first.
    """
    made, maps = [], []
    for other, part in zip(others.chunk(groups), heads.groups(groups), strict=True):
        common = shared_projection([part], part.maps.size(2), steps)
        other, common = balance(other @ part.refitted(common).mT, common)
        made.append(other)
        maps.append(common)
    return torch.cat(made), torch.stack(maps)


def latents(
    maps: HeadMaps, statistics: Statistics, size: int, steps: int = STEPS
) -> tuple[Tensor, Tensor, Tensor]:
    """The best latent: ``C (d_y, r)``, ``Uk (H, r, e)``, ``Uv (H, r, h_v)``, ready for rounding.

    Its basis is a :func:`rounding_basis`.  It is exact with ``r = d_y``.
    """
    down, [(key_up, value_up)] = one_latent([(maps, statistics)], size, steps)
    return down, key_up, value_up


def one_latent(
    every: Sequence[Measured], size: int, steps: int = STEPS
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """One ``C`` for several attentions that read the same inputs, and ``Uk``, ``Uv`` of each.

    It differs from :func:`latents` in that the price of ``C`` and that of rounding are summed over
    the attentions.
    """
    keys, values, directions = _keys_and_values(*every)
    if size == len(directions):
        down = torch.eye(size).to(directions)
        ups = [(key.maps, value.maps) for key, value in zip(keys, values, strict=True)]
    else:
        down = shared_projection([*keys, *values], size, steps, directions)
        ups = [(k.refitted(down), v.refitted(down)) for k, v in zip(keys, values, strict=True)]
    latent, fisher = every[0][1].inputs @ down, torch.zeros(size, size).to(down)
    for (_, statistics), pair in zip(every, ups, strict=True):
        up = torch.cat([u.transpose(0, 1).flatten(1) for u in pair], 1)
        fisher += up @ statistics.cache_fisher @ up.mT
    basis, inverse = rounding_basis(latent.mT @ latent / len(latent), fisher)
    return down @ basis, [(inverse @ key_up, inverse @ value_up) for key_up, value_up in ups]


def rounding_basis(moment: Tensor, fisher: Tensor) -> tuple[Tensor, Tensor]:
    """The basis ``T (r, r)`` in which a latent ``c T`` loses little by rounding, and its inverse.

    Numbers that share a scale get the same noise, which is proportional to their mean square.  So
    with second moment S and Fisher information F of c the price is proportional to ``tr(T^T S T)
    tr(T^-1 F T^-T)``, which is least where both matrices are equal, as in a balanced realisation
    (Moore 1981): ``T = S^-1/2 W L^1/4`` with ``S^1/2 F S^1/2 = W L W^T`` makes both ``L^1/2``.  A
    Hartley transform then spreads these over all numbers of the latent.

    One model of Multi30k (d = 128), 4 bits; prices in bits for r = 128, 64 and 32: 0.0079, 0.0140,
    0.0092 in the basis of the maps, 0.0071, 0.0087, 0.0071 after a random orthogonal map, 0.0070,
    0.0081, 0.0074 after a Hadamard transform of the principal components, 0.0068, 0.0111, 0.0080
    with scales by channel, and 0.0047, 0.0075, 0.0067 here.
    """
    size = len(moment)
    whole, root_inverse = root(ridged(moment))
    values, vectors = torch.linalg.eigh(whole @ ridged(fisher) @ whole)
    angles = 2 * math.pi / size * torch.outer(*[torch.arange(size).to(moment)] * 2)
    mixed = (angles.cos() + angles.sin()) / size**0.5  # symmetric, orthogonal
    scale = values.clamp_min(torch.finfo(values.dtype).tiny) ** 0.25
    basis, inverse = root_inverse @ (vectors * scale) @ mixed, mixed @ (vectors / scale).mT @ whole
    even = (torch.linalg.norm(inverse) / torch.linalg.norm(basis)) ** 0.5
    return basis * even, inverse / even


# ---- scales: a start for training ----------------------------------------------------------------


def balance(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Scale two factors to equal mean squares in each column; their product does not change.

    Shapes: ``(..., K)`` both.
    """
    left_size, right_size = (x.square().flatten(0, -2).mean(0) for x in (left, right))
    scale = (left_size / right_size) ** 0.25
    scale = torch.where(scale.isfinite() & (scale > 0), scale, 1.0)  # else a column is 0
    return left / scale, right * scale


def balanced(shared: Shared) -> Shared:
    """Scale query and key to equal mean squares, and the mixing to the size of a block mixing.

    The scores do not change.  With matrices, query, mixing and key have one factor each; with a
    diagonal, each dimension of the key has its own.
    """
    query, mixing, key = shared
    if mixing.dim() == 2:
        size = torch.linalg.vector_norm(mixing, dim=0)  # (K)
        query, key = balance(query, key)
    else:
        size = torch.linalg.vector_norm(mixing) / mixing.size(1) ** 0.5
        all_left, all_right = balance(query.reshape(-1, 1), key.reshape(-1, 1))
        query, key = all_left.view_as(query), all_right.view_as(key)
    size = size.clamp_min(torch.finfo(key.dtype).tiny)
    return Shared(query * size.sqrt(), mixing / size, key * size.sqrt())
