"""Weights and prices of new heads: shared keys, narrower keys, groups, latents.

The queries of new heads contain the ratio of the trained scale to the new one, so scales are exact.
Functions that return :data:`PricedWeights` return a state dict of the new attention, without its
signature, and its price in bits per target token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from collab_lab.mathematics.low_rank import BY_MIXING, separate_keys
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import (
    STEPS,
    WeightedMaps,
    balanced,
    best_shared_key,
    grouped,
    latents,
    one_latent,
)

#: The state dict of a new attention without its signature, and its price in bits.
PricedWeights = tuple[dict[str, Tensor], float]


def own_latent(attention: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
    """Latent heads with the best latent of an attention by itself.

    Args:
        size: width of the latent.
        steps: number of L-BFGS steps; 0 is faster, and the price is a few per cent higher.
    """
    return latent_heads(attention, *latents(attention.maps, attention.statistics, size, steps))


def narrower_keys(attention: PricedAttention, size: int) -> PricedWeights:
    """Separate keys of a smaller total width: the best of each head by itself."""
    width = size // attention.module.num_heads
    queries, keys = separate_keys(attention.maps, attention.statistics, width)
    weights, price = queries_and_keys(attention, queries, keys)
    return weights | attention.copied("v_proj", "out_proj"), price


def groups_of_neighbours(
    attention: PricedAttention, size: int, steps: int = STEPS
) -> PricedWeights:
    """Grouped-query heads: neighbours share the key and the value that lose least."""
    maps, statistics = attention.maps, attention.statistics
    queries, keys = grouped(WeightedMaps.keys(maps, statistics), maps.queries, size, steps)
    out, values = grouped(WeightedMaps.values(maps, statistics), maps.out, size, steps)
    return grouped_heads(attention, queries, keys, values, out)


def grouped_heads(
    attention: PricedAttention, queries: Tensor, keys: Tensor, values: Tensor, out: Tensor
) -> PricedWeights:
    """Grouped-query heads with these maps.

    Args:
        queries, out: maps of each head, ``(H, d + 1, e)`` and ``(H, d, h_v)``.
        keys, values: maps of each group, ``(G, d_y, e)`` and ``(G, d_y, h_v)``.
    """
    scale = scale_of_groups(attention)
    weights, price = queries_and_keys(attention, queries, keys, scale)
    of_heads = values.repeat_interleave(len(out) // len(values), 0)  # (H, d_y, h_v)
    value = values.transpose(1, 2).flatten(0, 1)  # (G h_v, d_y)
    more = {
        "v_proj.weight": value,
        "v_proj.bias": value.new_zeros(len(value)),
        "out_proj.weight": out.transpose(0, 1).flatten(1),
        "out_proj.bias": attention.out_bias(of_heads, out),
    }
    return weights | attention.state(more), price + attention.value_price(of_heads, out)


def scale_of_groups(attention: PricedAttention) -> float:
    """The scale of the scores of grouped-query heads: ``h_qk^-0.5``."""
    return float(attention.maps.keys.size(2) ** -0.5)


def latent_heads(
    attention: PricedAttention, down: Tensor, key_up: Tensor, value_up: Tensor
) -> PricedWeights:
    """Latent heads with the maps ``C (d_y, r)``, ``Uk (H, r, e)`` and ``Uv (H, r, h_v)``."""
    maps = attention.maps
    keys, values = down @ key_up, down @ value_up  # (H, d_y, e), (H, d_y, h_v)
    weights = {
        "latent_proj.weight": down.T,
        "latent_proj.bias": down.new_zeros(down.size(1)),
        "k_proj.weight": key_up.transpose(1, 2).flatten(0, 1),
        "v_proj.weight": value_up.transpose(1, 2).flatten(0, 1),
        "out_proj.bias": attention.out_bias(values, maps.out),
    }
    price = attention.key_price(maps.queries, keys) + attention.value_price(values, maps.out)
    return attention.copied("q_proj", "out_proj.weight") | attention.state(weights), price


def heads_of_one_latent(
    every: Sequence[PricedAttention], size: int, steps: int = STEPS
) -> list[PricedWeights]:
    """Latent heads of attentions that read the same inputs and share one ``C``.

    At full width ``C`` is the identity, and the latent equals the inputs.
    """
    if size == every[0].module.kdim:
        down = torch.eye(size).to(every[0].maps.keys)
        ups = [(one.maps.keys, one.maps.values[:, :-1]) for one in every]
    else:
        down, ups = one_latent([(one.maps, one.statistics) for one in every], size, steps)
    return [latent_heads(one, down, *pair) for one, pair in zip(every, ups, strict=True)]


def shared_keys(
    attention: PricedAttention, size: int, mixing: str, steps: int = STEPS
) -> PricedWeights:
    """Weights of queries and keys for :class:`.CollaborativeAttention` with key width ``size``.

    Args:
        mixing: query mixing: own, or a key of :data:`.BY_MIXING`.
    """
    if mixing == "own":
        queries, key = best_shared_key(attention.maps, attention.statistics, size, steps)
        half = attention.scale**0.5  # what queries are divided by: they and the key have one size
        return queries_and_keys(attention, queries * half, key.unsqueeze(0) / half)
    shared = BY_MIXING[mixing](attention.maps, attention.statistics, size)
    query, scaled, key = balanced(shared._replace(mixing=shared.mixing / attention.scale))
    weights = {**query_key_weights(query.unsqueeze(0), key.unsqueeze(0)), "mixing": scaled}
    return attention.state(weights), attention.key_price(shared.queries(), shared.key.unsqueeze(0))


def queries_and_keys(
    attention: PricedAttention, queries: Tensor, keys: Tensor, scale: float | None = None
) -> PricedWeights:
    """Weights of queries ``(H, d + 1, e)`` of each head and keys ``(G, d_y, e)`` of each group.

    Args:
        scale: scale of the new scores; default: ``(d/H)^-0.5``.
    """
    weights = query_key_weights(queries / (scale or attention.scale), keys)
    of_heads = keys.repeat_interleave(len(queries) // len(keys), 0)
    return attention.state(weights), attention.key_price(queries, of_heads)


def query_key_weights(queries: Tensor, keys: Tensor) -> dict[str, Tensor]:
    """Weights of queries ``(H, d + 1, e)``, the bias in the last row, and keys ``(G, d_y, e)``."""
    rows = queries.transpose(1, 2).flatten(0, 1)  # (H e, d + 1)
    key = keys.transpose(1, 2).flatten(0, 1)  # (G e, d_y)
    return {
        "q_proj.weight": rows[:, :-1],
        "q_proj.bias": rows[:, -1],
        "k_proj.weight": key,
        "k_proj.bias": key.new_zeros(len(key)),
    }
