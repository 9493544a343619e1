"""The kinds of heads that ``reparametrize`` makes: shared keys, narrower heads, groups, latents.

Scales are exact: the factor between the scale of the trained heads and that of the new ones goes
into the queries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_lab.conversion.base import PricedWeights, Target, TrainedAttention, embed_scale
from collab_lab.conversion.low_rank import MIXED, separate
from collab_lab.conversion.shared_projection import (
    STEPS,
    WeightedMaps,
    best_shared_key,
    grouped,
    latents,
)
from collab_lab.trained.attentions import Attention
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.attention.collaborative import QUERY_MIXINGS, widest_key
from fairseq_collab.models.variants import COLLABORATIVE, GROUPED_QUERY, LATENT, SEPARATE


class Collaborative(Target):
    """Shared keys, with the query mixing that ``--query-mixing`` names."""

    to = "collab"
    variant = COLLABORATIVE
    heads_name = "shared keys"
    size_name = "key width"
    standard_sized = ("values",)

    def __init__(self, query_mixing: str = "own", value_heads: int | None = None):
        super().__init__(query_mixing, value_heads)
        self.options = {"attention_scale": "embed", "query_mixing": query_mixing}
        if value_heads is None:
            names = [f"value_heads_in_{type_}" for type_ in ATTENTION_TYPES]
            self.inherited = ("value_heads", *names, "v_head_size")
        else:
            self.options["value_heads"] = value_heads

    def check(self, attention: Attention, path: Path) -> None:
        groups, mixing, module = self.value_heads, self.query_mixing, attention.module
        if mixing not in QUERY_MIXINGS:
            raise UserError(f"{mixing!r} is none of {', '.join(QUERY_MIXINGS)}", "--query-mixing")
        if mixing != "own" and self.must_convert(module):
            problem = "its heads share keys already; only own queries narrow them exactly"
            raise UserError(f"{attention}: {problem}", path, "give --query-mixing own")
        if groups is None:
            return
        if todo := uneven(module.num_heads, groups):
            problem = f"{attention}: number of value heads {groups} is out of range"
            raise UserError(problem, path, todo)
        if getattr(module, "value_heads", module.num_heads) < module.num_heads:
            problem = f"{attention}: its heads share {module.value_heads} values already"
            raise UserError(problem, path, "leave --value-heads out: they stay")

    def largest(self, module: Any) -> int:
        widest = widest_key(self.query_mixing, module.embed_dim, module.kdim)
        return int(min(super().largest(module), widest))

    def unchanged_size(self, module: Any) -> int:
        return self.largest(module) if self.must_convert(module) else 0

    @staticmethod
    def must_convert(module: Any) -> bool:
        # Scale and query mixing are those of all attentions of a model.
        return isinstance(module, CollaborativeAttention)

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        weights, price = shared_keys(trained, size, self.query_mixing, steps)
        if self.value_heads is None:
            return weights | trained.copied("v_proj", "out_proj"), price
        values, of_values = shared_values(trained, self.value_heads, steps)
        return weights | values, price + of_values


class Narrower(Target):
    """Separate keys of a smaller size: the best of each head by itself.

    A share of the cache leaves the size as it is, and chooses bits alone.
    """

    to = "headsize"
    variant = SEPARATE
    heads_name = "separate keys"
    size_name = "key width"
    standard_sized = ("values",)
    options = {"attention_scale": "embed"}  # noqa: RUF012 (read only)
    inherited = ("v_head_size",)
    one_size = True

    def out_of_range(self, module: Any, size: int) -> str | None:
        if size % module.num_heads:
            return f"give a multiple of its {module.num_heads} heads"
        return super().out_of_range(module, size)

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        width = size // trained.module.num_heads
        queries, keys = separate(trained.maps, trained.statistics, width)
        weights, price = separate_queries(trained, queries, keys)
        return weights | trained.copied("v_proj", "out_proj"), price


class GroupedQuery(Target):
    """Grouped-query heads: neighbours share the key and the value that lose least."""

    to = "grouped-query"
    variant = GROUPED_QUERY
    heads_name = "grouped-query heads"
    size_name = "number of key/value heads"
    standard_sized = ("keys", "values")

    def largest(self, module: Any) -> int:
        return int(module.num_heads)

    def out_of_range(self, module: Any, size: int) -> str | None:
        return uneven(module.num_heads, size)

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        heads = WeightedMaps.keys(trained.maps, trained.statistics)
        queries, keys = grouped(heads, trained.maps.queries, size, steps)
        weights, price = separate_queries(trained, queries, keys)
        values, of_values = shared_values(trained, size, steps)
        return weights | values, price + of_values


class Latent(Target):
    """Latent heads.  An attention that is left as it is has its inputs as latents."""

    to = "latent"
    variant = LATENT
    heads_name = "latent heads"
    size_name = "latent width"
    inherited = ("head_size", "qk_head_size", "v_head_size", "key_dim", "attention_scale")

    def largest(self, module: Any) -> int:
        return int(module.k_proj.in_features)

    @staticmethod
    def must_convert(module: Any) -> bool:
        return True

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        maps = trained.maps
        down, key_up, value_up = latents(maps, trained.statistics, size, steps)
        keys, values = down @ key_up, down @ value_up  # (H, d_y, e), (H, d_y, h_v)
        weights = {
            "latent_proj.weight": down.T,
            "latent_proj.bias": down.new_zeros(size),
            "k_proj.weight": key_up.transpose(1, 2).flatten(0, 1),
            "v_proj.weight": value_up.transpose(1, 2).flatten(0, 1),
            "out_proj.bias": trained.out_bias(values, maps.out),
        }
        price = trained.key_price(maps.queries, keys) + trained.value_price(values, maps.out)
        return trained.copied("q_proj", "out_proj.weight") | trained.state(weights), price


# ---- weights of projections ----------------------------------------------------------------------


def shared_keys(
    trained: TrainedAttention, size: int, mixing: str, steps: int = STEPS
) -> PricedWeights:
    """Queries and keys of :class:`.CollaborativeAttention` with a shared key of width ``size``.

    ``mixing`` is own, or a key of :data:`.MIXED`.
    """
    if mixing == "own":
        shared = best_shared_key(trained.maps, trained.statistics, size, steps)
        return separate_queries(trained, shared.query, shared.key.unsqueeze(0))
    shared = MIXED[mixing](trained.maps, trained.statistics, size)
    assert shared.mixing is not None
    weights = projections(shared.query.unsqueeze(0), shared.key.unsqueeze(0))
    weights["mixing"] = shared.mixing / embed_scale(trained.module)
    return trained.state(weights), trained.key_price(shared.queries(), shared.key.unsqueeze(0))


def separate_queries(trained: TrainedAttention, queries: Tensor, keys: Tensor) -> PricedWeights:
    """Queries ``(H, d + 1, e)`` of each head, and keys ``(G, d_y, e)`` of groups of heads."""
    weights = projections(queries / embed_scale(trained.module), keys)
    of_heads = keys.repeat_interleave(len(queries) // len(keys), 0)
    return trained.state(weights), trained.key_price(queries, of_heads)


def shared_values(trained: TrainedAttention, groups: int, steps: int = STEPS) -> PricedWeights:
    """Values shared by groups of neighbouring heads, an output projection for each head."""
    heads = WeightedMaps.values(trained.maps, trained.statistics)
    out, values = grouped(heads, trained.maps.out, groups, steps)
    of_heads = values.repeat_interleave(len(out) // groups, 0)  # (H, d_y, h_v)
    value = values.transpose(1, 2).flatten(0, 1)  # (G h_v, d_y)
    weights = {
        "v_proj.weight": value,
        "v_proj.bias": value.new_zeros(len(value)),
        "out_proj.weight": out.transpose(0, 1).flatten(1),
        "out_proj.bias": trained.out_bias(of_heads, out),
    }
    return trained.state(weights), trained.value_price(of_heads, out)


def projections(queries: Tensor, keys: Tensor) -> dict[str, Tensor]:
    """Queries ``(H, d + 1, e)``, whose last row is the bias, and keys ``(G, d_y, e)``."""
    rows = queries.transpose(1, 2).flatten(0, 1)  # (H e, d + 1)
    key = keys.transpose(1, 2).flatten(0, 1)  # (G e, d_y)
    return {
        "q_proj.weight": rows[:, :-1],
        "q_proj.bias": rows[:, -1],
        "k_proj.weight": key,
        "k_proj.bias": key.new_zeros(len(key)),
    }


def uneven(heads: int, groups: int) -> str | None:
    """The advice of an error, where ``groups`` do not divide ``heads``; else None."""
    if groups >= 1 and heads % groups == 0:
        return None
    good = [str(number) for number in range(1, heads + 1) if heads % number == 0]
    return f"give one that divides its {heads} heads: {', '.join(good)}"


#: By the values of ``--to``.
TARGETS = {kind.to: kind for kind in (Collaborative, Narrower, GroupedQuery, Latent)}
