"""Prices of heads, given what the others make up for: against least squares."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from collab_lab.pricing.heads import head_prices, removal_order
from collab_lab.pricing.statistics import Statistics
from collab_lab.trained.attentions import HeadMaps
from fairseq_collab.attention import SeparateAttention

pytestmark = pytest.mark.usefixtures("float64")

D, H, SIZE = 6, 4, 3


def attention(seed: int) -> tuple[Any, Statistics]:
    """Heads that predict parts of each other, and a metric of the output."""
    torch.manual_seed(seed)
    module = toy.randomised(SeparateAttention(D, H, qk_head_size=2, v_head_size=SIZE))
    h, g = torch.randn(30, H * SIZE) @ torch.randn(H * SIZE, H * SIZE), torch.randn(20, D)
    plain = Statistics.unweighted(HeadMaps.of(module))
    return module, replace(plain, head_covariance=h.T.cov(), output_fisher=g.T @ g)


def least_price(module: Any, statistics: Statistics, removed: set[int]) -> float:
    """The least ``1/2 tr((W' - W) C (W' - W)^T Delta) / ln 2`` of all W' without some heads."""
    metric: Tensor = torch.linalg.cholesky(statistics.output_fisher)
    factor = torch.linalg.cholesky(statistics.ridged().head_covariance)  # C = L L^T
    weight = module.out_proj.weight
    free = [i for i in range(H * SIZE) if i // SIZE not in removed]
    # (W' - W) L in the metric, row-major: W' enters by a Kronecker product.
    design = torch.kron(metric.T.contiguous(), factor[free].T.contiguous())
    target = (metric.T @ weight @ factor).flatten()
    fitted = torch.linalg.lstsq(design, target[:, None]).solution if free else torch.zeros(0, 1)
    return float((target - (design @ fitted)[:, 0]).square().sum()) / 2 / math.log(2)


@pytest.mark.parametrize("seed", range(3))
def test_removed_heads_cost_what_no_refit_makes_up_for(seed: int) -> None:
    """Alone, and in the order of removal, in which each head is the cheapest of those left."""
    module, statistics = attention(seed)
    alone = [least_price(module, statistics, {head}) for head in range(H)]
    assert head_prices(module, statistics) == pytest.approx(alone)
    removed: set[int] = set()
    price = 0.0
    for rise, head in removal_order(module, statistics):
        others = {*range(H)} - removed
        prices = {other: least_price(module, statistics, removed | {other}) for other in others}
        removed.add(head)
        price += rise
        assert price == pytest.approx(min(prices.values()))
        assert prices[head] == pytest.approx(price)
    assert removed == {*range(H)}


def test_a_head_that_others_repeat_is_free() -> None:
    """Two heads that write the same cost nothing apart, and much together."""
    module, statistics = attention(0)
    h = torch.randn(50, H * SIZE)
    h[:, SIZE : 2 * SIZE] = h[:, :SIZE] @ torch.randn(SIZE, SIZE)
    twins = replace(statistics, head_covariance=h.T.cov())
    prices, order = head_prices(module, twins), [*removal_order(module, twins)]
    assert max(prices[:2]) < 0.1 * min(prices[2:])
    assert order[0][1] in (0, 1)
    assert {order[0][1], order[1][1]} != {0, 1}
