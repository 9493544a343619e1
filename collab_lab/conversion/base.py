"""Targets of a conversion: a kind of heads, and a size for each attention."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from collab_lab.conversion import SIZES
from collab_lab.conversion.shared_projection import STEPS
from collab_lab.metrics.cost import LENGTH, UNROUNDED
from collab_lab.pricing import bits as pricing
from collab_lab.pricing.bits import Point
from collab_lab.pricing.statistics import Statistics
from collab_lab.trained.attentions import Attention, HeadMaps
from fairseq_collab.attention.rounding import cached_bits, rounded
from fairseq_collab.attention.scores import for_each_head
from fairseq_collab.models.base import Variant

#: The state dict of a new attention without its signature, and its price in bits.
PricedWeights = tuple[dict[str, Tensor], float]


#: Sizes of each attention that a budget is spread over.
GRID = 16


def embed_scale(module: Any) -> float:
    """``(d/H)^-0.5``, the scale of the results."""
    return float((module.embed_dim / module.num_heads) ** -0.5)


class TrainedAttention:
    """A trained attention, its maps, and the statistics that price changes of them.

    Args:
        statistics: without them all directions of the weights count equally.
    """

    def __init__(self, module: Any, statistics: Statistics | None):
        self.module, self.maps = module, HeadMaps.of(module)
        self.statistics = (statistics or Statistics.unweighted(self.maps)).ridged()

    def state(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights in the precision of the trained attention."""
        dtype = self.module.k_proj.weight.dtype
        return {name: value.detach().to(dtype).contiguous() for name, value in weights.items()}

    def copied(self, *names: str) -> dict[str, Tensor]:
        """Weights and biases of projections that stay as they are."""
        weights = self.module.state_dict()
        return {name: weight for name, weight in weights.items() if name.startswith(names)}

    def key_price(self, queries: Tensor, keys: Tensor) -> float:
        """See :func:`.bits.key_price`."""
        return pricing.key_price(self.maps, self.statistics, queries, keys)

    def value_price(self, values: Tensor, out: Tensor) -> float:
        """See :func:`.bits.value_price`."""
        return pricing.value_price(self.maps, self.statistics, values, out)

    def rounding_price(self, weights: Mapping[str, Tensor], bits: int) -> float:
        """Price of rounding what a new attention with these weights caches to ``bits``.

        What it would cache of the statistics' inputs is rounded.  An error of a shared key (value)
        is one of the keys of all heads that read it.  0 bits are no rounding; that of the trained
        attention is part of its model's loss.
        """
        if bits in (0, own_bits(self.module)):
            return 0.0
        maps, found = self.maps, self.statistics
        new = {name: weight.double() for name, weight in weights.items()}

        def error(name: str) -> Tensor:
            made = functional.linear(found.inputs, new[f"{name}.weight"], new.get(f"{name}.bias"))
            return rounded(made, bits) - made  # (n, numbers)

        if "latent_proj.weight" in new:
            latent = error("latent_proj")
            errors = [latent @ new[f"{name}.weight"].T for name in ("k_proj", "v_proj")]
        else:
            queries = queries_of(new, len(maps.queries)) * embed_scale(self.module)
            out = new["out_proj.weight"].unflatten(1, (len(maps.out), -1)).transpose(0, 1)
            errors = [
                read(error("k_proj"), maps.queries, queries, found.query_moment),
                read(error("v_proj"), maps.out, out, found.output_fisher),
            ]
        return pricing.rounding_price(torch.cat(errors, 1), found)

    def out_bias(self, values: Tensor, out: Tensor) -> Tensor:
        """The output's bias ``(d)`` for other values, which have no bias, and outputs.

        Attention weights sum to one.  So it contains the biases of the trained values exactly, and
        what the mean of the inputs that a head reads loses.
        """
        maps = self.maps
        constant = torch.einsum("hdk,hk->d", maps.out, maps.values[:, -1])
        residual = pricing.value_change(maps, values, out)  # (H, d_y, d)
        of_mean = torch.einsum("hy,hyd->d", self.statistics.value_mean, residual)
        return maps.out_bias + constant + of_mean


class Target:
    """What trained heads are converted to: a kind of heads.

    Args:
        query_mixing: of shared keys: own, full or diagonal.
        value_heads: values of shared keys; None for one per head.
    """

    #: The value of ``--to``, architectures, the name of its heads in messages, and of their size.
    to: ClassVar[str]
    variant: ClassVar[Variant]
    heads_name: ClassVar[str]
    size_name: ClassVar[str]
    #: Parts of standard heads that must have the size d/H: keys, values.
    standard_sized: tuple[str, ...] = ()
    #: Whether all attentions have one size, those of the encoder, too.
    one_size: ClassVar[bool] = False
    #: Options of the result, whatever its sizes.
    options: Mapping[str, Any] = MappingProxyType({})
    #: Options of the variant that are taken over from the trained model, if it has them.
    inherited: tuple[str, ...] = ()

    def __init__(self, query_mixing: str = "own", value_heads: int | None = None):
        self.query_mixing, self.value_heads = query_mixing, value_heads
        #: The option of its size: ``--key-dim``, ``--key-dim-in-TYPE``.
        self.size_option = SIZES[self.to]

    def largest(self, module: Any) -> int:
        """The size that is exact for an attention: of keys, all that its heads have."""
        return int(module.k_proj.out_features)

    def unchanged_size(self, module: Any) -> int:
        """The size of an attention that is left as it is."""
        return self.largest(module)

    @staticmethod
    def must_convert(module: Any) -> bool:
        """Whether an attention without a given size is converted, too, at its full size."""
        return False

    def check(self, attention: Attention, path: Path) -> None:
        """Raise UserError for options, other than sizes, that do not fit an attention."""

    def out_of_range(self, module: Any, size: int) -> str | None:
        """The sizes that an attention can have, if ``size`` is none of them."""
        largest = self.largest(module)
        return None if 1 <= size <= largest else f"give one from 1 to {largest}, which is exact"

    def grid(self, module: Any) -> list[int]:
        """Sizes to spread a budget over, ascending to the one that is exact: at most 16."""
        largest = self.largest(module)
        sizes = {max(1, largest * step // GRID) for step in range(1, GRID + 1)}
        return sorted(size for size in sizes if self.out_of_range(module, size) is None)

    def convert(self, trained: TrainedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        """The new attention in place of ``trained.module``.

        Args:
            steps: of L-BFGS; without them the price is a few per cent higher, in less time.
        """
        raise NotImplementedError


def own_bits(module: Any) -> int:
    """Bits of a cached number of an attention, fairseq's or ours; 0 without rounding."""
    return int(getattr(module, "cache_bits", 0))


def queries_of(weights: Mapping[str, Tensor], heads: int) -> Tensor:
    """Unscaled queries ``(H, d + 1, e)`` of an attention with these weights."""
    queries = torch.cat([weights["q_proj.weight"], weights["q_proj.bias"].unsqueeze(1)], 1).T
    mixing = weights.get("mixing")
    if mixing is None:
        return queries.unflatten(1, (heads, -1)).transpose(0, 1)
    return queries * mixing.unsqueeze(1) if mixing.dim() == 2 else queries @ mixing


def read(errors: Tensor, maps: Tensor, new_maps: Tensor, metric: Tensor) -> Tensor:
    """What errors of shared keys (values) are at the trained heads' own: ``(n, H e)``.

    The new queries (outputs) are products of the trained ones: ``A' = A R``, by least squares.

    Args:
        errors: ``(n, G e')``.
        maps, new_maps: ``A (H, m, e)`` and ``A' (H, m, e')``.
        metric: of the products, ``(m, m)``.
    """
    weighted = maps.mT @ metric  # (H, e, m)
    products = torch.linalg.pinv(weighted @ maps, hermitian=True) @ (weighted @ new_maps)
    of_groups = errors.unflatten(1, (-1, new_maps.size(2)))  # (n, G, e')
    of_heads = for_each_head(of_groups.transpose(0, 1).unsqueeze(0), len(maps))[0]  # (H, n, e')
    return (of_heads @ products.mT).transpose(0, 1).flatten(1)


def point(
    attention: Attention, size: int, weights: Mapping[str, Tensor], price: float, bits: int = 0
) -> Point:
    """An attention with these weights, and a cache of ``bits``: its costs, and its price."""
    cached = ("latent_proj",) if "latent_proj.weight" in weights else ("k_proj", "v_proj")
    widths = [len(weights[f"{name}.weight"]) for name in cached]
    cache = sum(cached_bits(width, bits) if bits else UNROUNDED * width for width in widths)
    parameters = sum(weight.numel() for name, weight in weights.items() if name != "signature")
    products = [weight for name, weight in weights.items() if name.endswith(".weight")]
    queries, mixing = len(weights["q_proj.weight"]), weights.get("mixing")
    if mixing is not None:
        queries = mixing.size(0) * mixing.size(1)
        products += [mixing] * (mixing.dim() == 3)  # the diagonal is element-wise
    scores = LENGTH * LENGTH * (queries + weights["out_proj.weight"].size(1))
    work = LENGTH * sum(weight.numel() for weight in products) + scores
    return Point(size, 0 if attention.type == "encoder" else cache, parameters, work, price, bits)
