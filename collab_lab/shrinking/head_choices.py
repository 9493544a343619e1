"""Choices of heads to keep: by price, at random, or by gates.

The price of removed heads (:mod:`.head_prices`) counts what the others make up for: of two heads
that write the same, either can go cheaply, but not both.

A gate (Voita et al. 2019, arXiv 1905.09418) multiplies a head's output, and so does a factor of the
head's columns of ``out_proj``: a gate moves there without a change of the function.  A head whose
gate is 0 then has columns of zeros, and can be removed.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple

import torch

from collab_common import AttentionType
from collab_common.errors import UserError
from collab_lab.mathematics.head_prices import removal_noises, removal_order
from collab_lab.statistics.attentions import Statistics
from collab_lab.trained.attentions import Attention, HeadCounts, Retained, attentions
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.gates import OPEN, GatedAttention, gated_attentions, rounded


def all_heads(heads: HeadCounts) -> dict[AttentionType, list[list[int]]]:
    """Every head."""
    return {type_: [list(range(count)) for count in counts] for type_, counts in heads.items()}


# ---- by price, or at random ----------------------------------------------------------------------


class Removal(NamedTuple):
    """The removal of a head, and how much it raises the price, in bits per target token.

    Attributes:
        noise: standard error of the rise; NaN if it is not known.
    """

    rise: float
    attention: Attention
    head: int
    noise: float = math.nan


def removals(statistics: Mapping[Attention, Statistics]) -> list[Removal]:
    """The order in which heads are removed: each removal raises the price least.

    Of removals whose rises differ from the least by no more than their noise, the first is that in
    the attention that has lost the smallest share of its heads: errors of prices are common to the
    heads of an attention, and one with too low a price would lose all of them.
    """
    queues = [deque(_removals_from(*pair)) for pair in statistics.items()]
    numbers, order = [*map(len, queues)], list[Removal]()

    def lost_share(i: int) -> tuple[float, float]:
        return 1 - len(queues[i]) / numbers[i], queues[i][0].rise

    # Heads of different attentions do not make up for each other: the orders can be merged.
    while left := [i for i, queue in enumerate(queues) if queue]:
        least = min((queues[i][0] for i in left), key=lambda removal: removal.rise)
        close = [i for i in left if not _differ(queues[i][0], least)]
        order.append(queues[min(close, key=lost_share)].popleft())
    return order


def _removals_from(attention: Attention, statistics: Statistics) -> list[Removal]:
    order = [*removal_order(attention.module, statistics)]
    noises = removal_noises(attention.module, statistics, [head for _, head in order])
    pairs = zip(order, noises, strict=True)
    return [Removal(rise, attention, head, noise) for (rise, head), noise in pairs]


def _differ(removal: Removal, least: Removal) -> bool:
    """Whether the rise is larger than the least one by more than the noise of both."""
    noise = math.hypot(removal.noise, least.noise)
    return removal.rise - least.rise > (0.0 if math.isnan(noise) else noise)


def random_removals(trained: Trained, seed: int) -> list[Removal]:
    """A random order, which ``seed`` determines, by random numbers in place of prices."""
    generator = torch.Generator().manual_seed(seed)
    every = [(a, head) for a in attentions(trained.model) for head in range(a.module.num_heads)]
    numbers = torch.rand(len(every), generator=generator).tolist()
    removals = [Removal(rise, *head) for rise, head in zip(numbers, every, strict=True)]
    return sorted(removals, key=lambda removal: removal.rise)


def without(heads: HeadCounts, removed: Iterable[Removal]) -> tuple[Retained, float]:
    """The retained heads of a model with these ``heads``, and the price in bits."""
    retained, price = all_heads(heads), 0.0
    for removal in removed:
        retained[removal.attention.type][removal.attention.layer].remove(removal.head)
        price += removal.rise
    return retained, price


def down_to(keep: int, removals: Sequence[Removal]) -> list[Removal]:
    """The first removals of each attention, of those of all its heads, that leave it ``keep``."""
    left, removed = Counter(removal.attention for removal in removals), []
    for removal in removals:
        if left[removal.attention] > keep:
            left[removal.attention] -= 1
            removed.append(removal)
    return removed


def equal_on_each_side(removals: Iterable[Removal], number: int) -> list[Removal]:
    """At least ``number`` removals at the least price, after which equally many stay on each side.

    The attentions of the encoder keep one number of heads, self- and cross-attention of the
    decoder another.

    Raises:
        UserError: a side would lose all.
    """
    sides: dict[bool, list[Removal]] = {}
    for removal in removals:
        sides.setdefault(removal.attention.type == "encoder", []).append(removal)
    removed = []  # by side and number of heads that stay
    for side in sides.values():
        fewest = min(Counter(removal.attention for removal in side).values())
        removed.append([down_to(kept, side) for kept in range(1, fewest + 1)])
    ways = [[*chain(*way)] for way in product(*removed)]
    most = max(map(len, ways))
    if number > most:
        todo = f"remove at most {most}: equally many stay on each side"
        raise UserError(f"cannot remove {number} heads", todo=todo)
    enough = [way for way in ways if len(way) >= number]
    return min(enough, key=lambda way: sum(removal.rise for removal in way))


# ---- by gates ------------------------------------------------------------------------------------


def open_heads(trained: Trained) -> Retained:
    """The heads with an open gate or none; a layer may have no head left."""
    if not gated_attentions(trained.model):
        todo = "give a transformer_gated_heads, or another choice of heads"
        raise UserError("its heads have no gates", trained.path, todo)
    retained = all_heads(trained.heads)
    for type_, layers in trained.attentions.items():
        for attention in layers:
            if isinstance(attention.module, GatedAttention):
                [opened] = rounded(attention.module.log_alpha).nonzero(as_tuple=True)
                retained[type_][attention.layer] = opened.tolist()
    return retained


@torch.no_grad()
def without_gates(trained: Trained) -> Trained:
    """The model with its gates multiplied into ``out_proj``, and open: a copy, if it has gates."""
    if not gated_attentions(trained.model):
        return trained
    result = trained.with_model(copy.deepcopy(trained.model))
    for attention in gated_attentions(result.model):
        gates = rounded(attention.log_alpha).to(attention.out_proj.weight)
        attention.out_proj.weight.mul_(gates.repeat_interleave(attention.v_head_size))  # (H h_v,)
        attention.theta.fill_(OPEN / attention.gate_speed)
    return result
