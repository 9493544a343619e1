"""Prices: by how many bits per target token a change of an attention is to increase the loss.

    1/2 sum_i [ tr(D_i^T X D_i Gamma_i) + tr(F_i^T Z_i F_i Delta) ] / ln 2     of D_i, F_i
    1/2 mean_s n_s Psi n_s^T / ln 2                            with errors n of keys and values

``D_i`` is the change of ``A_i B_i^T``, ``F_i`` that of ``V_i Wo_i^T`` (without its constant row).
The mean of what a change loses goes into the bias of the output.  ``n_s`` is what the rounding of a
cache really changes at tokens ``s``, the inputs that the statistics keep: so the noise of a
quantiser is not assumed, at a width that no model has, either.  These are second-order
approximations; the statistics are those of :mod:`.statistics`, with the independence that K-FAC
assumes (Martens and Grosse 2015).  Changes ``D_i``, ``F_i`` of several heads are taken as
independent, too; removed heads are not.  Prices of several attentions add up.

A budget is spread over attentions by an exact search (:func:`cheapest`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from collab_lab.pricing.statistics import Statistics
from collab_lab.trained.attentions import HeadMaps

K = TypeVar("K")


def key_price(maps: HeadMaps, statistics: Statistics, queries: Tensor, keys: Tensor) -> float:
    """Price of other queries ``(H, d + 1, k)`` and keys ``(H or 1, d_y, k)``, in bits."""
    change = maps.queries @ maps.keys.mT - queries @ keys.mT  # D: (H, d + 1, d_y)
    return _bits(statistics.query_moment @ change, change @ statistics.key_fisher)


def value_price(maps: HeadMaps, statistics: Statistics, values: Tensor, out: Tensor) -> float:
    """Price of other values ``(H, d_y, v)`` and outputs ``(H, d, v)``, in bits."""
    change = value_change(maps, values, out)
    return _bits(statistics.value_covariance @ change, change @ statistics.output_fisher)


def value_change(maps: HeadMaps, values: Tensor, out: Tensor) -> Tensor:
    """``F (H, d_y, d)`` of other values ``(H, d_y, v)`` and outputs ``(H, d, v)``."""
    return maps.values[:, :-1] @ maps.out.mT - values @ out.mT


def _bits(left: Tensor, right: Tensor) -> float:
    """Half of the sum over heads of ``tr(left^T right)``, from nats to bits."""
    return max(0.0, float((left * right).sum())) / 2 / math.log(2)


def rounding_price(errors: Tensor, statistics: Statistics) -> float:
    """Price of errors ``(n, H (e + h_v))`` of keys and values at tokens, in bits."""
    return _bits(errors @ statistics.cache_fisher, errors) / len(errors)


class Point(NamedTuple):
    """An attention at one size.

    Attributes:
        cache: bits per token in its KV cache; numbers that are not rounded have 16.
        parameters: of the attention.
        multiply_adds: of a sentence (pair) as in :mod:`collab_lab.metrics.cost`.
        price: in bits of loss.
        bits: of a number in its KV cache; 0 if it is not rounded.
    """

    size: int
    cache: int
    parameters: int
    multiply_adds: int
    price: float
    bits: int = 0

    def cost(self, resource: str) -> int:
        """One of cache, parameters or multiply-adds."""
        return int(getattr(self, resource.replace("-", "_")))


def cheapest(
    curves: Mapping[K, Sequence[Point]], budgets: Mapping[str, int]
) -> dict[K, Point] | None:
    """One point of each curve, of least total price, with all sums of costs within their budgets.

    ``budgets`` are of cache, parameters or multiply-adds.  None if no choice is within them.  A
    multiple-choice knapsack, by branch and bound.
    """
    pairs = [(key, point) for key, curve in curves.items() for point in curve]
    one_per_curve = [[key == curve for key, _ in pairs] for curve in curves]
    limits = [LinearConstraint(one_per_curve, 1, 1)]
    for resource, budget in budgets.items():
        costs = [point.cost(resource) for _, point in pairs]
        unit = math.gcd(*costs) or 1  # small numbers: the solver's tolerance is absolute
        limits.append(LinearConstraint([cost // unit for cost in costs], ub=budget // unit))
    prices = [point.price for _, point in pairs]
    # The solver takes sums as equal that differ by less than 1e-6.
    scale = 1e6 / max(*prices, 1e-12)
    solution = milp(
        [scale * price for price in prices],
        integrality=1,
        bounds=Bounds(0, 1),
        constraints=limits,
        options={"mip_rel_gap": 0},
    )
    if solution.x is None:
        return None
    return {key: point for (key, point), x in zip(pairs, solution.x, strict=True) if x > 0.5}
