"""Weights and prices of new heads: shared keys, narrower keys, groups, latents.

The queries of new heads contain the ratio of the trained scale to the new one, so scales are exact.
Each function returns a state dict of the new attention, without its signature, and its price in
bits per target token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from collab_lab.mathematics.low_rank import MIXED, separate
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import (
    STEPS,
    WeightedMaps,
    best_shared_key,
    grouped,
    latents,
    one_latent,
)

#: The state dict of a new attention without its signature, and its price in bits.
PricedWeights = tuple[dict[str, Tensor], float]


def own_latent(trained: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
    """Latent heads with the best latent of an attention by itself.

    Args:
        size: width of the latent.
        steps: number of L-BFGS steps; 0 is faster, and the price is a few per cent higher.
    """
    return latent_heads(trained, *latents(trained.maps, trained.statistics, size, steps))


def narrower_keys(trained: PricedAttention, size: int) -> PricedWeights:
    """Separate keys of a smaller total width: the best of each head by itself."""
    width = size // trained.module.num_heads
    queries, keys = separate(trained.maps, trained.statistics, width)
    weights, price = separate_queries(trained, queries, keys)
    return weights | trained.copied("v_proj", "out_proj"), price


def groups_of_neighbours(trained: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
    """Grouped-query heads: neighbours share the key and the value that lose least."""
    maps, statistics = trained.maps, trained.statistics
    queries, keys = grouped(WeightedMaps.keys(maps, statistics), maps.queries, size, steps)
    out, values = grouped(WeightedMaps.values(maps, statistics), maps.out, size, steps)
    return grouped_heads(trained, queries, keys, values, out)


def grouped_heads(
    trained: PricedAttention, queries: Tensor, keys: Tensor, values: Tensor, out: Tensor
) -> PricedWeights:
    """Grouped-query heads with these maps.

    Args:
        queries, out: maps of each head, ``(H, d + 1, e)`` and ``(H, d, h_v)``.
        keys, values: maps of each group, ``(G, d_y, e)`` and ``(G, d_y, h_v)``.
    """
    scale = scale_of_groups(trained)
    weights, price = separate_queries(trained, queries, keys, scale)
    of_heads = values.repeat_interleave(len(out) // len(values), 0)  # (H, d_y, h_v)
    value = values.transpose(1, 2).flatten(0, 1)  # (G h_v, d_y)
    more = {
        "v_proj.weight": value,
        "v_proj.bias": value.new_zeros(len(value)),
        "out_proj.weight": out.transpose(0, 1).flatten(1),
        "out_proj.bias": trained.out_bias(of_heads, out),
    }
    return weights | trained.state(more), price + trained.value_price(of_heads, out)


def scale_of_groups(trained: PricedAttention) -> float:
    """The scale of the scores of grouped-query heads: ``h_qk^-0.5``."""
    return float(trained.maps.keys.size(2) ** -0.5)


def latent_heads(
    trained: PricedAttention, down: Tensor, key_up: Tensor, value_up: Tensor
) -> PricedWeights:
    """Latent heads with the maps ``C (d_y, r)``, ``Uk (H, r, e)`` and ``Uv (H, r, h_v)``."""
    maps = trained.maps
    keys, values = down @ key_up, down @ value_up  # (H, d_y, e), (H, d_y, h_v)
    weights = {
        "latent_proj.weight": down.T,
        "latent_proj.bias": down.new_zeros(down.size(1)),
        "k_proj.weight": key_up.transpose(1, 2).flatten(0, 1),
        "v_proj.weight": value_up.transpose(1, 2).flatten(0, 1),
        "out_proj.bias": trained.out_bias(values, maps.out),
    }
    price = trained.key_price(maps.queries, keys) + trained.value_price(values, maps.out)
    return trained.copied("q_proj", "out_proj.weight") | trained.state(weights), price


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
    trained: PricedAttention, size: int, mixing: str, steps: int = STEPS
) -> PricedWeights:
    """Weights of queries and keys for :class:`.CollaborativeAttention` with key width ``size``.

    Args:
        mixing: query mixing: own, or a key of :data:`.MIXED`.
    """
    if mixing == "own":
        queries, key = best_shared_key(trained.maps, trained.statistics, size, steps)
        return separate_queries(trained, queries, key.unsqueeze(0))
    shared = MIXED[mixing](trained.maps, trained.statistics, size)
    weights = query_key_weights(shared.query.unsqueeze(0), shared.key.unsqueeze(0))
    weights["mixing"] = shared.mixing / trained.scale
    return trained.state(weights), trained.key_price(shared.queries(), shared.key.unsqueeze(0))


def separate_queries(
    trained: PricedAttention, queries: Tensor, keys: Tensor, scale: float | None = None
) -> PricedWeights:
    """Weights of queries ``(H, d + 1, e)`` of each head and keys ``(G, d_y, e)`` of each group.

    Args:
        scale: scale of the new scores; default: ``(d/H)^-0.5``.
    """
    weights = query_key_weights(queries / (scale or trained.scale), keys)
    of_heads = keys.repeat_interleave(len(queries) // len(keys), 0)
    return trained.state(weights), trained.key_price(queries, of_heads)


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
