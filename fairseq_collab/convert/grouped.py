"""The target ``grouped-query``: trained heads share keys and values in groups.

    mean    Wk_g = mean of Wk_i over the heads of group g, and so Wv_g
    first   Wk_g = Wk_i of the group's first head
    random  Wk_g as in a model that has not been trained
    fit     Wk_i ~ B_i Wk_g by least squares (:mod:`.low_rank`), B_i (h, h) goes into the queries:
            (x Wq_i^T + bq_i) B_i;  Wv_i ~ B'_i Wv_g, and B'_i goes into the output: Wo_i B'_i

Ainslie et al. 2023, arXiv 2305.13245, section 2.1: the first three, of which they found ``mean``
best and train on.  ``fit`` is ours: the least error of the scores, and of the outputs, that heads
with ``G`` keys and values can have, queries and output projections changed along.

Biases are exact: that of the keys is the same for all keys and cancels in the softmax; attention
weights sum to one, so that what a value's bias loses is a constant, which ``bo`` takes up.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_collab.attention.init import init_projection
from fairseq_collab.attention.projections import linear
from fairseq_collab.convert.heads import Heads, Weighed
from fairseq_collab.convert.low_rank import (
    Projections,
    balance,
    down_and_up,
    shared_directions,
)
from fairseq_collab.convert.target import Converted, Target
from fairseq_collab.models.variants import GROUPED_QUERY

POOLINGS = ("mean", "first", "random", "fit")


def shared(projections: Projections, groups: int, pooling: str) -> tuple[Tensor, Tensor]:
    """One projection a group, ``W (G, h, d_y)``, and ``B (H, h, h)`` with ``W_i ~ B_i W_g``.

    A head that shares with no other keeps its own.
    """
    own = projections.weights
    heads, size, _ = own.shape
    each = own.unflatten(0, (groups, -1))  # (G, H/G, h, d_y)
    same = torch.eye(size).to(own).expand(heads, size, size)
    if groups == heads or pooling == "mean":
        return each.mean(1), same
    if pooling == "first":
        return each[:, 0], same
    if pooling == "random":
        fresh = linear(own.size(2), groups * size)
        init_projection(fresh, same_dims=True)
        return fresh.weight.detach().to(own).unflatten(0, (groups, size)), same
    down, up = [], []
    for members in torch.arange(heads).unflatten(0, (groups, -1)).tolist():
        part = projections[members]
        directions = shared_directions(part.rows(), size)
        one, ups = down_and_up(directions, part.weights, part.metric)
        down.append(one)
        up.append(ups)
    return torch.stack(down), torch.cat(up)


def pooled(
    projections: Projections, readers: Tensor, groups: int, pooling: str
) -> tuple[Tensor, Tensor, Tensor]:
    """``W_g (G, h, d_y)`` and ``B (H, h, h)`` as of :func:`shared`, and ``B_i W_g (H, h, d_y)``.

    What is fitted is as large as what reads it, of the heads ``readers (H, h, n)``.
    """
    weights, up = shared(projections, groups, pooling)
    each = len(up) // groups
    if pooling == "fit" and each > 1:
        read = (up.mT @ readers).unflatten(0, (groups, each))  # (G, H/G, h, n)
        read = read.transpose(1, 2).flatten(2)  # (G, h, H/G n)
        scale = balance(weights.flatten(0, 1), read.flatten(0, 1)).unflatten(0, (groups, -1))
        weights = weights * scale.unsqueeze(2)
        up = up / scale.repeat_interleave(each, 0).unsqueeze(1)
    return weights, up, up @ weights.repeat_interleave(each, 0)


def grouped(part: Weighed, groups: int, pooling: str) -> tuple[Heads, Tensor, Tensor]:
    """Heads of which ``wk, bk, wv, bv`` have ``G`` entries, and what all make of an input then.

    Returns:
        The heads; ``B_i Wk_g (H, h, d_y)``; ``B'_i Wv_g (H, h, d_y)``.
    """
    heads, values = grouped_values(part, groups, pooling)
    wk, up, keys = pooled(part.keys, heads.wq, groups, pooling)
    wq, bq = up.mT @ heads.wq, (heads.bq.unsqueeze(1) @ up).squeeze(1)
    return heads._replace(wq=wq, bq=bq, wk=wk, bk=_means(heads.bk, groups)), keys, values


def grouped_values(part: Weighed, groups: int, pooling: str) -> tuple[Heads, Tensor]:
    """Heads of which ``wv`` and ``bv`` have ``G`` entries, and ``B'_i Wv_g (H, h, d_y)``."""
    heads = part.heads
    wv, up, values = pooled(part.values, heads.wo.mT, groups, pooling)
    result = heads._replace(wv=wv, bv=_means(heads.bv, groups), wo=heads.wo @ up)
    left = result.outputs(result.bv.repeat_interleave(len(up) // groups, 0))
    bo = heads.bo + (heads.outputs(heads.bv) - left)  # exactly bo where no head shares
    if pooling == "fit" and part.input_mean is not None:
        bo = bo + heads.outputs((heads.wv - values) @ part.input_mean)
    return result._replace(bo=bo), values


def _means(each: Tensor, groups: int) -> Tensor:
    """Those of groups of heads: ``(H, ...) -> (G, ...)``."""
    return each.unflatten(0, (groups, -1)).mean(1)


def uneven(heads: int, groups: int) -> str | None:
    """Which numbers of groups heads can have, if ``groups`` is none of them."""
    even = [number for number in range(1, heads + 1) if heads % number == 0]
    if groups in even:
        return None
    return f"give one of {', '.join(map(str, even))}; {heads} is exact"


def matched(keys: Projections, values: Projections, groups: int, pooling: str) -> list[int]:
    """An order of the heads in which those that lose little by sharing stand together.

    From the order that they have, the swap of two heads that gains most is made until none gains.
    """
    heads, members = len(keys.weights), len(keys.weights) // groups

    def cost(group: Sequence[int]) -> float:
        lost = 0.0
        for projections in (keys, values):
            part = projections[group]
            down, up = shared(part, 1, pooling)
            error = part.relative_error(up @ down) * torch.linalg.vector_norm(part.rows())
            lost += float(error / torch.linalg.vector_norm(projections.rows())) ** 2
        return lost

    order = torch.arange(heads).unflatten(0, (groups, -1)).tolist()
    costs = [cost(group) for group in order]
    while True:
        best, change = 1e-9, None
        for a, b in itertools.combinations(range(groups), 2):
            for i, j in itertools.product(range(members), repeat=2):
                one, other = list(order[a]), list(order[b])
                one[i], other[j] = other[j], one[i]
                new = cost(one), cost(other)
                if (gain := costs[a] + costs[b] - sum(new)) > best:
                    best, change = gain, (a, one, new[0], b, other, new[1])
        if change is None:
            return [head for group in order for head in group]
        a, one, cost_a, b, other, cost_b = change
        order[a], costs[a], order[b], costs[b] = one, cost_a, other, cost_b


class GroupedQuery(Target):
    """Grouped-query heads."""

    variant = GROUPED_QUERY
    heads = "grouped-query heads"
    size, what = "key_value_heads", "number of key/value heads"
    even = ("keys", "values")

    @staticmethod
    def largest(module: Any) -> int:
        return int(module.num_heads)

    @classmethod
    def out_of_range(cls, module: Any, size: int) -> str | None:
        return uneven(module.num_heads, size)

    def convert(self, module: Any, part: Weighed, size: int) -> Converted:
        """Errors are those of :meth:`.Weighed.errors`."""
        if self.args.match_heads:
            part = part.in_order(matched(part.keys, part.values, size, self.args.pooling))
        heads, keys, values = grouped(part, size, self.args.pooling)
        return heads.state(module.q_proj.weight), part.errors(keys, values)
