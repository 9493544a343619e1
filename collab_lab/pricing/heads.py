"""Prices of heads: what a removed head costs, after ``out_proj`` has made up for what it can.

    price of removing the heads R = 1/2 tr(W_R (C_RR - C_RK C_KK^-1 C_KR) W_R^T Delta) / ln 2

in bits per target token.  ``C`` is the covariance of what ``out_proj`` reads (all heads' outputs
side by side), ``W (d, H h_v)`` its weight, K the retained heads, ``Delta`` the Fisher information
of the output (:mod:`.statistics`).  ``W_K + W_R C_RK C_KK^-1`` is the best map of the rest in any
metric of the output, and the bracket is what the rest cannot predict.  This is the optimal brain
surgeon (Hassibi and Stork 1993) on heads, as in ZipLM (Kurtic et al. 2023, arXiv 2302.04089).

With P the inverse of C, the bracket is the inverse of ``P_RR``.  When a head goes, P and W of the
others follow by block elimination, and prices of one head after the other add up exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from collab_lab.pricing.statistics import Statistics
from collab_lab.trained.attentions import HeadMaps


def removal_order(
    module: Any, statistics: Statistics, order: Sequence[int] | None = None
) -> Iterator[tuple[float, int]]:
    """All heads, always the cheapest of those left: by how much its removal raises the price.

    Args:
        order: of the heads, if they are not to be chosen.
    """
    out, inverse, left = *_start(module, statistics), [*range(module.num_heads)]
    while left:
        unpredicted = _unpredicted(inverse)
        rises = _prices(out, unpredicted, statistics.output_fisher)
        gone = int(rises.argmin()) if order is None else left.index(order[-len(left)])
        yield float(rises[gone]), left.pop(gone)
        others = [i for i in range(len(out)) if i != gone]
        gain = inverse[others, gone] @ unpredicted[gone]  # (H - 1, h_v, h_v)
        out = out[others] - out[gone] @ gain.mT
        inverse = inverse[others][:, others] - gain.unsqueeze(1) @ inverse[gone, others]


def head_prices(module: Any, statistics: Statistics) -> list[float]:
    """The price of removing each head of an attention alone, in bits."""
    out, inverse = _start(module, statistics)
    return list(_prices(out, _unpredicted(inverse), statistics.output_fisher).tolist())


def head_noises(module: Any, statistics: Statistics) -> list[float]:
    """The standard error of each of :func:`head_prices`, from two halves of the sentences.

    It is half of their difference; NaN of a single sentence.
    """
    return _noises([head_prices(module, half) for half in statistics.halves()], module.num_heads)


def removal_noises(module: Any, statistics: Statistics, order: Sequence[int]) -> list[float]:
    """The standard error of what each removal in this order raises the price by."""
    halves = [removal_order(module, half, order) for half in statistics.halves()]
    return _noises([[rise for rise, _ in half] for half in halves], len(order))


def _noises(halves: list[list[float]], number: int) -> list[float]:
    return [abs(a - b) / 2 for a, b in zip(*halves, strict=True)] if halves else [math.nan] * number


def _start(module: Any, statistics: Statistics) -> tuple[Tensor, Tensor]:
    """``W (H, d, h_v)`` and ``P (H, H, h_v, h_v)`` by heads."""
    out, covariance = HeadMaps.of(module).out, statistics.ridged().head_covariance
    size = len(out), out.size(2)
    return out, covariance.inverse().view(*size, *size).transpose(1, 2)


def _unpredicted(inverse: Tensor) -> Tensor:
    """The covariance of each head's output that all others do not predict: ``(H, h_v, h_v)``."""
    return inverse.diagonal().permute(2, 0, 1).inverse()


def _prices(out: Tensor, unpredicted: Tensor, output_fisher: Tensor) -> Tensor:
    return (out.mT @ output_fisher @ out * unpredicted).sum((1, 2)) / 2 / math.log(2)
