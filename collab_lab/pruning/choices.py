"""Choices of heads to keep: by price or importance, by name, at random, or by gates.

The price of removed heads (:mod:`.bits`) counts pairs of heads: of two heads that write the same,
either can go cheaply, but not both.  Votes are in :mod:`.votes`.

A gate (Voita et al. 2019, arXiv 1905.09418) multiplies a head's output, and so does a factor of the
head's columns of ``out_proj``: a gate moves there without a change of the function.  A head whose
gate is 0 then has columns of zeros, and can be removed.
"""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple

import torch
from torch import Tensor

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from collab_lab.pruning.surgery import Retained
from collab_lab.trained.attentions import Attention, HeadCounts
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.gates import OPEN, GatedAttention, gated_attentions, rounded

#: The importance of each head, by attention type and layer.
Importances = Mapping[AttentionType, Sequence[Sequence[float]]]
#: The measure of ``heads.json`` that is used: Michel et al. 2019, arXiv 1905.10650.
MEASURE = "importance"
#: A layer without heads in ``--keep-heads``.
NO_HEADS = "-"


def all_heads(heads: HeadCounts) -> dict[AttentionType, list[list[int]]]:
    """Every head."""
    return {type_: [list(range(count)) for count in counts] for type_, counts in heads.items()}


def named_heads(choices: Sequence[str], heads: HeadCounts) -> Retained:
    """Parse ``TYPE:HEADS/HEADS/...``: head numbers by layer joined by commas, ``-`` for none.

    Heads of one layer are those of all layers.  Attention types that are not named keep all heads.
    """
    retained = all_heads(heads)
    named: set[str] = set()
    for choice in choices:
        type_, _, text = choice.partition(":")
        try:
            layers = [
                [] if layer == NO_HEADS else [int(head) for head in layer.split(",")]
                for layer in text.split("/")
            ]
        except ValueError:
            layers = []
        if type_ not in ATTENTION_TYPES or not layers or type_ in named:
            raise UserError(
                f"cannot parse {choice!r}",
                where="--keep-heads",
                todo=f"give each of {', '.join(ATTENTION_TYPES)} at most once, as in "
                "encoder:0,3/1,2 (heads 0 and 3 of the first layer, 1 and 2 of the second)",
            )
        if not heads[type_]:
            raise UserError(f"the model has no {type_} attention", where="--keep-heads")
        named.add(type_)
        retained[type_] = layers * len(heads[type_]) if len(layers) == 1 else layers
    return retained


def heads_of_types(
    trained: Trained, types: Sequence[AttentionType] | None
) -> dict[AttentionType, list[int]]:
    """The numbers of heads of these attention types, default all; UserError for one without."""
    for type_ in types or ():
        if not trained.heads[type_]:
            raise UserError(f"the model has no {type_} attention", trained.path, "--types")
    return {type_: trained.heads[type_] for type_ in (types or ATTENTION_TYPES)}


def check_enough(heads: HeadCounts, keep: int) -> None:
    """Raise UserError for more heads than an attention has."""
    if keep < 1:
        raise UserError(f"must be a whole number above 0, not {keep}", "--keep")
    for type_, counts in heads.items():
        if min(counts, default=keep) < keep:
            problem = f"cannot keep {keep} heads of {type_} attention, which has {min(counts)}"
            raise UserError(problem, "--keep")


# ---- by price, or importance ---------------------------------------------------------------------


class Removal(NamedTuple):
    """The removal of a head, and how much it raises the price, in bits per target token."""

    rise: float
    attention: Attention
    head: int


def removals(fisher: Mapping[Attention, Tensor]) -> list[Removal]:
    """The order in which heads are removed: each removal raises the price least.

    Args:
        fisher: ``M (H, H)`` of each attention (:mod:`.statistics`).  With importances on a diagonal
            the least important head goes first.
    """
    orders = [
        [Removal(rise, attention, head) for rise, head in _order(matrix)]
        for attention, matrix in fisher.items()
    ]
    # Heads of different attentions have no pairs: the orders can be merged.
    return list(heapq.merge(*orders, key=lambda removal: removal.rise))


def _order(fisher: Tensor) -> Iterator[tuple[float, int]]:
    """Heads of one attention: by how much ``1/2 1_R^T M 1_R / ln 2`` rises when they join R."""
    fisher = fisher / math.log(2)
    rise = fisher.diagonal() / 2
    for _ in fisher:
        head = int(rise.argmin())
        yield float(rise[head]), head
        rise = rise + fisher[head]
        rise[head] = math.inf


def without(heads: HeadCounts, removed: Iterable[Removal]) -> tuple[Retained, float]:
    """The retained heads of a model with these ``heads``, and the price in bits."""
    retained, price = all_heads(heads), 0.0
    for rise, attention, head in removed:
        retained[attention.type][attention.layer].remove(head)
        price += rise
    return retained, price


def random_importances(heads: HeadCounts, seed: int) -> Importances:
    """Random importances; ``seed`` determines them."""
    generator = torch.Generator().manual_seed(seed)
    return {
        type_: [torch.rand(count, generator=generator).tolist() for count in counts]
        for type_, counts in heads.items()
    }


def on_diagonals(importances: Importances, trained: Trained) -> dict[Attention, Tensor]:
    """Importances as matrices for :func:`removals`; UserError unless each head has one."""
    for type_, counts in trained.heads.items():
        layers = importances.get(type_, ())
        if [*map(len, layers)] != counts or not all(map(math.isfinite, chain(*layers))):
            problem = f"{type_} attention: not a number for each of its heads, {counts} by layer"
            raise UserError(problem, "importances")
    return {
        attention: torch.tensor(values).diag()
        for type_, layers in trained.attentions.items()
        for attention, values in zip(layers, importances.get(type_, ()), strict=True)
    }


def cheapest(
    heads: HeadCounts, fisher: Mapping[Attention, Tensor], number: int
) -> tuple[Retained, float]:
    """Remove ``number`` heads of the whole model; an attention may lose all."""
    return without(heads, removals(fisher)[:number])


def cheapest_of_each(
    heads: HeadCounts, fisher: Mapping[Attention, Tensor], keep: int
) -> tuple[Retained, float]:
    """Retain ``keep`` heads of each attention, which :func:`check_enough` has found there."""
    removed = [removals({attention: m})[: len(m) - keep] for attention, m in fisher.items()]
    return without(heads, chain(*removed))


def equal_on_each_side(
    heads: HeadCounts, orders: Mapping[Attention, Sequence[Removal]], number: int
) -> tuple[Retained, float]:
    """Remove at least ``number`` heads at the least price, equally many stay on each side.

    The attentions of the encoder keep one number of heads, self- and cross-attention of the
    decoder another.

    Args:
        orders: in which each attention loses its heads.

    Raises:
        UserError: a side would lose all.
    """
    by_side: dict[bool, list[Sequence[Removal]]] = {}
    for attention, order in orders.items():
        by_side.setdefault(attention.type == "encoder", []).append(order)
    removed = [  # by side and number of heads that stay
        [
            [removal for order in side for removal in order[: len(order) - kept]]
            for kept in range(1, min(map(len, side)) + 1)
        ]
        for side in by_side.values()
    ]
    ways = [[*chain(*way)] for way in product(*removed)]
    most = max(map(len, ways))
    if number > most:
        todo = f"remove at most {most}: equally many stay on each side"
        raise UserError(f"cannot remove {number} heads", todo=todo)
    enough = [without(heads, way) for way in ways if len(way) >= number]
    return min(enough, key=lambda result: result[1])


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
