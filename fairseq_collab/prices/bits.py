"""Prices: by how many bits per target token a change of an attention is to increase the loss.

    1/2 sum_i [ tr(D_i^T X D_i Gamma_i) + tr(F_i^T Z_i F_i Delta) ] / ln 2     of D_i, F_i
    1/2 1_R^T M 1_R / ln 2                                                     without the heads R

``D_i`` is the change of ``A_i B_i^T``, ``F_i`` that of ``V_i Wo_i^T`` (without its constant row).
The mean of what a change loses goes into the bias of the output.  These are second-order
approximations; the statistics are those of :mod:`.statistics`, with the independence that K-FAC
assumes (Martens and Grosse 2015).  Prices of several attentions add up.

A budget is spread over attentions by an exact search (:func:`cheapest`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from fairseq_collab.prices.statistics import Statistics
from fairseq_collab.trained.attentions import HeadMaps

K = TypeVar("K")


def key_price(maps: HeadMaps, statistics: Statistics, queries: Tensor, keys: Tensor) -> float:
    """Price of other queries ``(H, d + 1, k)`` and keys ``(H or 1, d_y, k)``, in bits."""
    change = maps.queries @ maps.keys.mT - queries @ keys.mT  # D: (H, d + 1, d_y)
    return _bits(statistics.inputs @ change, change @ statistics.keys)


def value_price(maps: HeadMaps, statistics: Statistics, values: Tensor, out: Tensor) -> float:
    """Price of other values ``(H, d_y, v)`` and outputs ``(H, d, v)``, in bits."""
    change = lost_values(maps, values, out)
    return _bits(statistics.values @ change, change @ statistics.output)


def lost_values(maps: HeadMaps, values: Tensor, out: Tensor) -> Tensor:
    """``F (H, d_y, d)`` of other values ``(H, d_y, v)`` and outputs ``(H, d, v)``."""
    return maps.values[:, :-1] @ maps.out.mT - values @ out.mT


def _bits(left: Tensor, right: Tensor) -> float:
    """Half of the sum over heads of ``tr(left^T right)``, from nats to bits."""
    return max(0.0, float((left * right).sum())) / 2 / math.log(2)


def head_prices(pairs: Tensor) -> Tensor:
    """The price of removing each head alone, in bits: ``(H)``."""
    return pairs.diagonal() / 2 / math.log(2)


class Point(NamedTuple):
    """An attention at one size.

    Attributes:
        cache: numbers per token in its KV cache.
        parameters: all of its own.
        price: in bits.
    """

    size: int
    cache: int
    parameters: int
    price: float


def cheapest(curves: Mapping[K, Sequence[Point]], of: str, budget: int) -> dict[K, Point] | None:
    """One point of each curve, of least total price, with the sum of ``of`` within ``budget``.

    ``of`` is cache or parameters.  None if no choice is within the budget.  A multiple-choice
    knapsack, by dynamic programming over costs in units of their greatest common divisor.
    """
    costs = {key: [getattr(point, of) for point in curve] for key, curve in curves.items()}
    unit = math.gcd(*(cost for each in costs.values() for cost in each)) or 1
    if budget < 0:
        return None
    best = np.zeros(budget // unit + 1)  # by budget
    choices = []
    for key, curve in curves.items():
        prices = np.full((len(curve), len(best)), np.inf)
        for row, cost, point in zip(prices, costs[key], curve, strict=True):
            if cost // unit < len(best):
                row[cost // unit :] = best[: len(best) - cost // unit] + point.price
        choices.append(prices.argmin(0))
        best = prices.min(0)
    if not np.isfinite(best[-1]):
        return None
    left, found = len(best) - 1, {}
    for key, choice in zip(reversed([*curves]), reversed(choices), strict=True):
        index = choice[left]
        found[key] = curves[key][index]
        left -= costs[key][index] // unit
    return {key: found[key] for key in curves}
