"""Shapes: what a site of a smaller model keeps, and what that costs.

A *site* is an attention or a feed-forward block; its :class:`Shape` says which heads or units stay,
what kind of heads they become, and in how many bits their KV cache is.  Costs are counted on the
module of that shape, built on torch's meta device (which has sizes but no numbers), so that there
is only one way to count a cost.

Shapes: H heads of sizes h_qk and h_v, inputs of sizes d and d_y, F units.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from fairseq.modules import MultiheadAttention
from torch import nn

from collab_lab.metrics.cost import UNROUNDED, cached_bits, standard_costs, totals
from collab_lab.trained.attentions import Attention, attentions, heads_together, own_bits
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.collaborative import widest_key
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.shared_latent import SharedLatentAttention
from fairseq_collab.models.base import Variant
from fairseq_collab.models.layers import is_copy, maps_of_any_width
from fairseq_collab.models.variants import COLLABORATIVE, GROUPED_QUERY, LATENT, SEPARATE

#: A place where something can be cut.
Site = Attention | FeedForward
#: The parts of a site that can be cut, in the order in which a draft loses them.
PARTS = ("units", "heads", "cache")
#: Whether a cache is one copy for all cross-attentions, and this attention keeps it or reads it.
Copy = Literal["", "kept", "read"]


class Blueprint(NamedTuple):
    """An attention to build: its class, and the arguments that its costs depend on."""

    attention: type[HeadAttention]
    arguments: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, attention: type[HeadAttention], **arguments: Any) -> Blueprint:
        return cls(attention, tuple(arguments.items()))

    def build(self) -> HeadAttention:
        """The attention, with initial weights."""
        return self.attention(**dict(self.arguments))


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of heads to which an attention can be converted.

    Attributes:
        name: its name in commands: ``--kinds``, ``--to``.
        variant: the variant of models that has these heads.
        heads_name, size_name: what messages call the heads and their size.
        size_option: the option with the size: ``--key-dim``, also in ``--key-dim-in-TYPE``.
        blueprint: makes the blueprint from a module, a number of its heads, and a size.
        exact: computes the exact size from a module and a number of its heads.
        options: options of the model that hold for every size.
        inherited: options of the variant that are copied from the trained model, if it has them;
            all others describe heads that no longer exist.
        unchanged: computes, from a module and its number of heads, the size that the options state
            for an attention that is not converted.
        has_head_sizes: whether options state the sizes of all queries, keys and values.
        one_size: whether all attentions must have the same size, including the encoder's.
    """

    name: str
    variant: Variant
    heads_name: str
    size_name: str
    size_option: str
    blueprint: Callable[[Any, int, int], Blueprint]
    exact: Callable[[Any, int], int]
    options: Mapping[str, Any] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    unchanged: Callable[[Any, int], int] = lambda module, heads: 0
    has_head_sizes: bool = False
    one_size: bool = False


@dataclass(frozen=True)
class Shape:
    """What a site keeps, and what becomes of it.

    Attributes:
        heads: remaining heads of an attention, counted from 0.
        units: remaining units of a feed-forward block, counted from 0.
        kind: kind of heads that the attention is converted to; None if it is not converted.
        size: size of the converted heads: a width, or a number of key/value heads.
        bits: bits per number in the KV cache; 0 if it is not rounded.
        copy: whether this cross-attention keeps, or reads, one cache that all of them share;
            empty if it has its own.
    """

    heads: tuple[int, ...] = ()
    units: tuple[int, ...] = ()
    kind: Kind | None = None
    size: int = 0
    bits: int = 0
    copy: Copy = ""

    @property
    def width(self) -> int:
        """The number of remaining heads or units."""
        return len(self.heads) or len(self.units)

    @property
    def shared(self) -> tuple[int, int] | None:
        """The size and the bits of the cache that all cross-attentions share, or None."""
        return (self.size, self.bits) if self.copy else None


class Costs(NamedTuple):
    """The costs of a site or of a model.

    Attributes:
        cache: bits per token in the KV cache, with 16 bits for a number that is not rounded.
        parameters: number of parameters of the site; of a model, those of all layers, without
            embeddings and final norms.
        heads: number of heads.
    """

    cache: int
    parameters: int
    heads: int


def sites_of(trained: Trained) -> list[Site]:
    """All attentions and feed-forward blocks."""
    return [*attentions(trained.model), *feed_forwards(trained.model)]


def width_of(site: Site) -> int:
    """The number of heads of an attention, or of units of a block."""
    return int(site.module.num_heads) if isinstance(site, Attention) else site.width


def as_it_is(site: Site) -> Shape:
    """The shape of a site that is not cut."""
    every = tuple(range(width_of(site)))
    if isinstance(site, FeedForward):
        return Shape(units=every)
    module, copy = site.module, Shape.copy
    if isinstance(module, SharedLatentAttention):
        copy = "kept" if module.keeps_cache else "read"
    return Shape(every, bits=0 if site.type == "encoder" else own_bits(module), copy=copy)


# ---- costs ---------------------------------------------------------------------------------------


def costs(site: Site, shape: Shape) -> Costs:
    """The costs of a site in a shape."""
    if isinstance(site, FeedForward):
        d, d_out = site.module.fc1.in_features, site.module.fc2.out_features
        return Costs(0, _of_block(d, len(shape.units), d_out), 0)
    copy: Copy = shape.copy if shape.heads else ""
    module, parameters = _counted(blueprint(site.module, shape), copy)
    module.cache_bits = shape.bits
    cache = 0 if site.type == "encoder" else sum(cached_bits(module, UNROUNDED))
    return Costs(cache, parameters, len(shape.heads))


def blueprint(module: Any, shape: Shape) -> Blueprint:
    """The blueprint of the attention that replaces a module, for one shape."""
    if shape.kind is not None and shape.size and shape.heads:
        return shape.kind.blueprint(module, len(shape.heads), shape.size)
    return with_heads(module, shape.heads)


@functools.lru_cache(1 << 14)
def _counted(attention: Blueprint, copy: Copy) -> tuple[Any, int]:
    """An attention on torch's meta device, and its parameters without those of a shared copy."""
    with torch.device("meta"):
        module: Any = attention.build()
        others = set[nn.Parameter]()
        if copy == "read":
            owner = attention.build()
            module.share(owner)
            others = {*owner.parameters()}
    return module, sum(p.numel() for p in {*module.parameters()} - others)


@functools.lru_cache(1 << 14)
def _of_block(d: int, units: int, d_out: int) -> int:
    with torch.device("meta"), maps_of_any_width():
        maps = nn.Linear(d, units), nn.Linear(units, d_out)
    return sum(p.numel() for one in maps for p in one.parameters())


def with_heads(module: Any, heads: Sequence[int]) -> Blueprint:
    """The blueprint of an attention like this module, but with these of its heads, in our classes.

    Groups of heads that share keys or values stay as far as they have a head left.
    """
    arguments: dict[str, Any] = {"embed_dim": module.embed_dim, "num_heads": len(heads)}
    arguments["kdim"] = module.kdim
    if not heads:  # of any size
        return Blueprint.of(SeparateAttention, **arguments, qk_head_size=1, v_head_size=1)
    if isinstance(module, MultiheadAttention | SeparateAttention):
        key, value = key_value_sizes(module)
        return Blueprint.of(SeparateAttention, **arguments, qk_head_size=key, v_head_size=value)
    arguments["v_head_size"] = module.v_head_size
    groups = len({head // heads_together(module) for head in heads})
    if isinstance(module, CollaborativeAttention):
        arguments |= {"key_dim": module.key_dim, "query_mixing": module.query_mixing}
        arguments |= {"scale": module.scale, "value_heads": groups}
        return Blueprint.of(CollaborativeAttention, **arguments)
    arguments["qk_head_size"] = module.qk_head_size
    if isinstance(module, GroupedQueryAttention):
        return Blueprint.of(GroupedQueryAttention, **arguments, key_value_heads=groups)
    kind = SharedLatentAttention if isinstance(module, SharedLatentAttention) else LatentAttention
    return Blueprint.of(kind, **arguments, latent_dim=module.latent_dim, scale=module.scale)


def key_value_sizes(module: Any) -> tuple[int, int]:
    """``h_qk`` and ``h_v`` of heads with separate projections; both are 1 if there are no heads."""
    if not module.num_heads:
        return 1, 1
    maps = module.q_proj.out_features, module.out_proj.in_features
    return maps[0] // module.num_heads, maps[1] // module.num_heads


def model_costs(trained: Trained) -> Costs:
    """The costs of a model; a rounded cache counts with its bits."""
    heads = sum(map(sum, trained.heads.values()))
    return Costs(totals(trained.model)["cache"], layer_parameters(trained.model), heads)


def whole_costs(trained: Trained) -> Costs:
    """The costs that count as 100%: those of :func:`model_costs`, but with a standard cache."""
    return model_costs(trained)._replace(cache=standard_costs(trained.model)["cache"])


def shares_left(smaller: Trained, trained: Trained) -> dict[str, float]:
    """The costs of a smaller model, as shares of those of the trained model."""
    now, whole = model_costs(smaller)._asdict(), whole_costs(trained)._asdict()
    return {name: now[name] / whole[name] for name in whole}


def layer_parameters(model: nn.Module) -> int:
    """The number of parameters of all layers, without embeddings and final norms."""
    named = model.named_parameters()
    return sum(p.numel() for name, p in named if ".layers." in name and not is_copy(name))


# ---- kinds of heads ------------------------------------------------------------------------------


def _arguments(module: Any, number: int) -> dict[str, Any]:
    key, value = key_value_sizes(module)
    arguments = {"embed_dim": module.embed_dim, "num_heads": number, "kdim": module.kdim}
    return {**arguments, "qk_head_size": key, "v_head_size": value}


def _all_keys(module: Any, heads: int) -> int:
    return int(module.k_proj.out_features)


def _whole_input(module: Any, heads: int) -> int:
    return int(module.kdim)


def _each_head(module: Any, heads: int) -> int:
    return heads


@functools.cache
def shared_keys_kind(query_mixing: str = "own") -> Kind:
    """The kind of shared keys with this query mixing."""

    def blueprint(module: Any, number: int, size: int) -> Blueprint:
        arguments = {**_arguments(module, number), "key_dim": size, "query_mixing": query_mixing}
        del arguments["qk_head_size"]
        return Blueprint.of(CollaborativeAttention, **arguments)

    def exact(module: Any, heads: int) -> int:
        widest = widest_key(query_mixing, module.embed_dim, module.kdim)
        return int(min(_all_keys(module, heads), widest))

    return Kind(
        "collab", COLLABORATIVE, "shared keys", "key width", "key_dim", blueprint, exact,
        options={"attention_scale": "embed", "query_mixing": query_mixing}, has_head_sizes=True,
    )  # fmt: skip


def _narrower(module: Any, number: int, size: int) -> Blueprint:
    arguments = {**_arguments(module, number), "qk_head_size": size // number}
    return Blueprint.of(SeparateAttention, **arguments)


def _grouped(module: Any, number: int, size: int) -> Blueprint:
    return Blueprint.of(GroupedQueryAttention, **_arguments(module, number), key_value_heads=size)


def _latent(module: Any, number: int, size: int) -> Blueprint:
    return Blueprint.of(LatentAttention, **_arguments(module, number), latent_dim=size)


def _shared_latent(module: Any, number: int, size: int) -> Blueprint:
    return Blueprint.of(SharedLatentAttention, **_arguments(module, number), latent_dim=size)


NARROWER_KEYS = Kind(
    "separate", SEPARATE, "separate keys", "key width", "key_dim", _narrower, _all_keys,
    options={"attention_scale": "embed"}, inherited=("v_head_size",), one_size=True,
    unchanged=lambda module, heads: int(heads * key_value_sizes(module)[0]),
)  # fmt: skip
GROUPS = Kind(
    "grouped-query", GROUPED_QUERY, "grouped-query heads", "number of key/value heads",
    "key_value_heads", _grouped, _each_head, has_head_sizes=True,
    unchanged=lambda module, heads: max(1, heads),  # without heads, any number
)  # fmt: skip
_LATENT_HEADS = LATENT, "latent heads", "latent width", "latent_dim"
_OF_LATENTS = ("head_size", "qk_head_size", "v_head_size", "key_dim", "attention_scale")
LATENTS = Kind("latent", *_LATENT_HEADS, _latent, _whole_input, inherited=_OF_LATENTS)
ONE_LATENT = Kind("latent", *_LATENT_HEADS, _shared_latent, _whole_input, inherited=_OF_LATENTS)
