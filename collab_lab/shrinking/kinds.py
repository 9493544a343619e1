"""The kinds of heads that ``reparametrize`` makes: shared keys, narrower heads, groups, latents.

Scales are exact: the factor between the scale of the trained heads and that of the new ones goes
into the queries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from collab_lab.mathematics.attention_price import TrainedAttention
from collab_lab.mathematics.low_rank import MIXED, separate
from collab_lab.mathematics.shared_projection import (
    STEPS,
    WeightedMaps,
    best_shared_key,
    grouped,
    latents,
    one_latent,
)
from collab_lab.shrinking import SIZES
from fairseq_collab.attention.collaborative import widest_key
from fairseq_collab.models.base import Variant
from fairseq_collab.models.variants import COLLABORATIVE, GROUPED_QUERY, LATENT, SEPARATE

#: The state dict of a new attention without its signature, and its price in bits.
PricedWeights = tuple[dict[str, Tensor], float]
#: Sizes of each attention that a budget is spread over.
GRID = 16


def sizes_of(module: Any) -> tuple[int, int]:
    """``h_qk`` and ``h_v`` of heads with separate projections."""
    maps = module.q_proj.out_features, module.v_proj.out_features
    return maps[0] // module.num_heads, maps[1] // module.num_heads


class HeadKind(ABC):
    """What trained heads are converted to: a kind of heads."""

    #: The value of ``--to``, architectures, the name of its heads in messages, and of their size.
    to: ClassVar[str]
    variant: ClassVar[Variant]
    heads_name: ClassVar[str]
    size_name: ClassVar[str]
    #: Parts of standard heads that must have the size d/H: keys, values.
    standard_sized: tuple[str, ...] = ()
    #: Whether all attentions have one size, those of the encoder, too.
    one_size: ClassVar[bool] = False
    #: Whether attentions without a given size are converted, too, at their full size.
    converts_all: ClassVar[bool] = False
    #: Whether attentions may have any number of heads, none, too, and heads of any size.
    any_heads: ClassVar[bool] = False
    #: Whether all cross-attentions can have one latent.
    can_share: ClassVar[bool] = False
    #: Whether its options say the sizes of queries and keys, and of values, one for all heads.
    has_sizes: ClassVar[bool] = False
    #: Options of the result, whatever its sizes.
    options: Mapping[str, Any] = MappingProxyType({})
    #: Options of the variant that are taken over from the trained model, if it has them.
    inherited: tuple[str, ...] = ()

    @property
    def size_option(self) -> str:
        """The option of its size: ``--key-dim``, ``--key-dim-in-TYPE``."""
        return SIZES[self.to]

    def exact_size(self, module: Any) -> int:
        """The size that is exact for an attention: of keys, all that its heads have."""
        return int(module.k_proj.out_features)

    def unchanged_size(self, module: Any) -> int:
        """The size of an attention without a given one: 0 where it is left as it is."""
        return self.exact_size(module)

    def out_of_range(self, module: Any, size: int) -> str | None:
        """The sizes that an attention can have, if ``size`` is none of them."""
        exact = self.exact_size(module)
        return None if 1 <= size <= exact else f"give one from 1 to {exact}, which is exact"

    def grid(self, module: Any) -> list[int]:
        """Sizes to spread a budget over, ascending to the one that is exact: at most 16."""
        exact = self.exact_size(module)
        sizes = {max(1, exact * step // GRID) for step in range(1, GRID + 1)}
        return sorted(size for size in sizes if self.out_of_range(module, size) is None)

    def scale(self, trained: TrainedAttention) -> float:
        """The scale of the scores of the new attention, which queries make up for."""
        return trained.scale

    @abstractmethod
    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        """The new attention in place of ``trained.module``.

        Args:
            steps: of L-BFGS; without them the price is a few per cent higher, in less time.
        """


class PlannedKind(HeadKind):
    """A kind whose sizes a plan chooses."""

    def usual_size(self, heads: int) -> int:
        """What options say of an attention that a plan leaves as it is, by its heads."""
        return 0

    def full_size(self, module: Any, heads: int) -> int:
        """The size that is exact for some ``heads`` of an attention, whichever they are."""
        return self.exact_size(module)

    def fits(self, module: Any, heads: int, size: int) -> bool:
        """Whether some ``heads`` of an attention can have this size, and are smaller for it."""
        return True

    @abstractmethod
    def costs(self, module: Any, heads: int, size: int) -> tuple[list[int], int]:
        """Of an attention of this kind with these ``heads`` of those of ``module``.

        Returns:
            The lengths of the vectors that are cached of a token, and the number of parameters.
        """


class Collaborative(PlannedKind):
    """Shared keys, with the query mixing that ``--query-mixing`` names."""

    to = "collab"
    variant = COLLABORATIVE
    heads_name = "shared keys"
    size_name = "key width"
    any_heads = True
    has_sizes = True

    def __init__(self, query_mixing: str = "own"):
        self.query_mixing = query_mixing
        self.options = {"attention_scale": "embed", "query_mixing": query_mixing}

    def exact_size(self, module: Any) -> int:
        widest = widest_key(self.query_mixing, module.embed_dim, module.kdim)
        return int(min(super().exact_size(module), widest))

    def unchanged_size(self, module: Any) -> int:
        return 0

    def fits(self, module: Any, heads: int, size: int) -> bool:
        return size < heads * sizes_of(module)[0]

    def costs(self, module: Any, heads: int, size: int) -> tuple[list[int], int]:
        (_, value), d, d_y = sizes_of(module), module.embed_dim, module.kdim
        maps = size * (d_y + 1) + heads * (size * (d + 1) + value * (d_y + 1 + d))
        return [size, heads * value], maps + d

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        weights, price = shared_keys(trained, size, self.query_mixing, steps)
        return weights | trained.copied("v_proj", "out_proj"), price


class Narrower(HeadKind):
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
    converts_all = True

    def grid(self, module: Any) -> list[int]:
        return [self.exact_size(module)]

    def out_of_range(self, module: Any, size: int) -> str | None:
        if size % module.num_heads:
            return f"give a multiple of its {module.num_heads} heads"
        return super().out_of_range(module, size)

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        width = size // trained.module.num_heads
        queries, keys = separate(trained.maps, trained.statistics, width)
        weights, price = separate_queries(trained, queries, keys)
        return weights | trained.copied("v_proj", "out_proj"), price


class GroupedQuery(PlannedKind):
    """Grouped-query heads: neighbours share the key and the value that lose least."""

    to = "grouped-query"
    variant = GROUPED_QUERY
    heads_name = "grouped-query heads"
    size_name = "number of key/value heads"
    any_heads = True
    has_sizes = True

    def exact_size(self, module: Any) -> int:
        return int(module.num_heads)

    def usual_size(self, heads: int) -> int:
        return max(1, heads)  # without heads, any number

    def unchanged_size(self, module: Any) -> int:
        return self.usual_size(module.num_heads)

    def scale(self, trained: TrainedAttention) -> float:
        return float(trained.maps.keys.size(2) ** -0.5)

    def out_of_range(self, module: Any, size: int) -> str | None:
        heads = module.num_heads
        good = [number for number in range(1, heads + 1) if heads % number == 0]
        listed = ", ".join(map(str, good))
        return None if size in good else f"give one that divides its {heads} heads: {listed}"

    def full_size(self, module: Any, heads: int) -> int:
        return heads

    def fits(self, module: Any, heads: int, size: int) -> bool:
        return heads % size == 0 and size < heads

    def costs(self, module: Any, heads: int, size: int) -> tuple[list[int], int]:
        (key, value), d, d_y = sizes_of(module), module.embed_dim, module.kdim
        maps = heads * (key * (d + 1) + value * d) + size * (key + value) * (d_y + 1)
        return [size * key, size * value], maps + d

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        maps, statistics = trained.maps, trained.statistics
        queries, keys = grouped(WeightedMaps.keys(maps, statistics), maps.queries, size, steps)
        out, values = grouped(WeightedMaps.values(maps, statistics), maps.out, size, steps)
        weights, price = separate_queries(trained, queries, keys, self.scale(trained))
        of_heads = values.repeat_interleave(len(out) // size, 0)  # (H, d_y, h_v)
        value = values.transpose(1, 2).flatten(0, 1)  # (G h_v, d_y)
        more = {
            "v_proj.weight": value,
            "v_proj.bias": value.new_zeros(len(value)),
            "out_proj.weight": out.transpose(0, 1).flatten(1),
            "out_proj.bias": trained.out_bias(of_heads, out),
        }
        return weights | trained.state(more), price + trained.value_price(of_heads, out)


class Latent(PlannedKind):
    """Latent heads."""

    to = "latent"
    variant = LATENT
    heads_name = "latent heads"
    size_name = "latent width"
    any_heads = True
    can_share = True
    inherited = ("head_size", "qk_head_size", "v_head_size", "key_dim", "attention_scale")

    def exact_size(self, module: Any) -> int:
        return int(module.kdim)

    def unchanged_size(self, module: Any) -> int:
        return 0

    def costs(self, module: Any, heads: int, size: int) -> tuple[list[int], int]:
        (key, value), d, d_y = sizes_of(module), module.embed_dim, module.kdim
        maps = size * (d_y + 1) + heads * (size * (key + value) + key * (d + 1) + value * d)
        return [size], maps + d

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        return latent_heads(trained, *latents(trained.maps, trained.statistics, size, steps))


# ---- weights of projections ----------------------------------------------------------------------


def latent_heads(
    trained: TrainedAttention, down: Tensor, key_up: Tensor, value_up: Tensor
) -> PricedWeights:
    """Latent heads of ``C (d_y, r)``, ``Uk (H, r, e)`` and ``Uv (H, r, h_v)``."""
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
    every: Sequence[TrainedAttention], size: int, steps: int = STEPS
) -> list[PricedWeights]:
    """Latent heads of attentions that read the same inputs, with one ``C`` for all.

    At full width ``C`` is the identity: the latent is the inputs themselves.
    """
    if size == every[0].module.kdim:
        down = torch.eye(size).to(every[0].maps.keys)
        ups = [(one.maps.keys, one.maps.values[:, :-1]) for one in every]
    else:
        down, ups = one_latent([(one.maps, one.statistics) for one in every], size, steps)
    return [latent_heads(one, down, *pair) for one, pair in zip(every, ups, strict=True)]


def shared_keys(
    trained: TrainedAttention, size: int, mixing: str, steps: int = STEPS
) -> PricedWeights:
    """Queries and keys of :class:`.CollaborativeAttention` with a shared key of width ``size``.

    ``mixing`` is own, or a key of :data:`.MIXED`.
    """
    if mixing == "own":
        queries, key = best_shared_key(trained.maps, trained.statistics, size, steps)
        return separate_queries(trained, queries, key.unsqueeze(0))
    shared = MIXED[mixing](trained.maps, trained.statistics, size)
    weights = query_key_weights(shared.query.unsqueeze(0), shared.key.unsqueeze(0))
    weights["mixing"] = shared.mixing / trained.scale
    return trained.state(weights), trained.key_price(shared.queries(), shared.key.unsqueeze(0))


def separate_queries(
    trained: TrainedAttention, queries: Tensor, keys: Tensor, scale: float | None = None
) -> PricedWeights:
    """Queries ``(H, d + 1, e)`` of each head, and keys ``(G, d_y, e)`` of groups of heads.

    Args:
        scale: of the new scores; default: ``(d/H)^-0.5``.
    """
    weights = query_key_weights(queries / (scale or trained.scale), keys)
    of_heads = keys.repeat_interleave(len(queries) // len(keys), 0)
    return trained.state(weights), trained.key_price(queries, of_heads)


def query_key_weights(queries: Tensor, keys: Tensor) -> dict[str, Tensor]:
    """Queries ``(H, d + 1, e)``, whose last row is the bias, and keys ``(G, d_y, e)``."""
    rows = queries.transpose(1, 2).flatten(0, 1)  # (H e, d + 1)
    key = keys.transpose(1, 2).flatten(0, 1)  # (G e, d_y)
    return {
        "q_proj.weight": rows[:, :-1],
        "q_proj.bias": rows[:, -1],
        "k_proj.weight": key,
        "k_proj.bias": key.new_zeros(len(key)),
    }


#: By the values of ``--to``.
HEAD_KINDS = {kind.to: kind for kind in (Collaborative, Narrower, GroupedQuery, Latent)}
