"""A plan: what stays of every site of a model, its price, its costs, and the smaller model.

    plan = least price of one choice a site, under budgets of cache, parameters and heads

An integer programme (:func:`.attention_price.cheapest`) over the :class:`.Choice` of each site.
:meth:`Plan.apply` removes heads and units, converts the heads that stay, computes the price of the
conversion for them, and refits all blocks in the order of data (:mod:`.refit`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from torch import nn

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.metrics.cost import standard_costs, totals
from collab_lab.shrinking.attention_price import TrainedAttention, cheapest
from collab_lab.shrinking.choices import (
    MULTIPLE,
    PARTS,
    Choice,
    Removals,
    Site,
    Times,
    attention_choices,
    caches_of,
    copy_of,
    removals_of,
    uncut,
    unit_choices,
)
from collab_lab.shrinking.converter import Converter
from collab_lab.shrinking.head_choices import all_heads
from collab_lab.shrinking.head_parts import heads_together
from collab_lab.shrinking.kinds import Collaborative, GroupedQuery, Latent, PlannedKind
from collab_lab.shrinking.rise import measured_rise
from collab_lab.shrinking.statistics import Statistics, check_of_caches, matched, own_bits
from collab_lab.shrinking.surgery import RetainedUnits, check_heads, joined, pruned, width_options
from collab_lab.shrinking.unit_statistics import UnitStatistics
from collab_lab.trained.attentions import Attention, Retained, attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.rebuilt import rebuilt, weights_of
from fairseq_collab.attention.rounding import BITS
from fairseq_collab.models.layers import is_copy

#: What a budget can be of.
RESOURCES = ("cache", "parameters", "heads", "time")
#: What a plan may cut.
CUTS = ("heads", "units", "cache")
#: The engine that a model is for, and the multiples of its feed-forward widths.
ENGINES = {"fairseq": MULTIPLE, "ct2": 64, "onnx": MULTIPLE}
#: Bits of a number in a smaller cache; 0: no rounding.
ANY_BITS = (0, *BITS)
#: Kinds of heads for a smaller cache, whose sizes a plan chooses; headsize: heads as they are.
KINDS: dict[str, PlannedKind | None] = {
    "latent": Latent(),
    "headsize": None,
    "grouped-query": GroupedQuery(),
    "collab": Collaborative(),
}
#: Those that are tried unless others are given: of CTranslate2, what it keeps.
USUAL_KINDS = {
    "fairseq": ("latent", "headsize"),
    "ct2": ("grouped-query",),
    "onnx": ("latent", "headsize"),
}


def whole_costs(trained: Trained) -> dict[str, int]:
    """The costs that budgets are shares of.

    ``cache``: bits per token of the standard cache in 16-bit numbers; ``parameters``: of all
    layers, without embeddings; ``heads``.
    """
    return costs(trained) | {"cache": standard_costs(trained.model)["cache"]}


def costs(trained: Trained) -> dict[str, int]:
    """The costs of a model: see :func:`whole_costs`; what it rounds counts in its bits."""
    return {
        "cache": totals(trained.model)["cache"],
        "parameters": layer_parameters(trained.model),
        "heads": sum(map(sum, trained.heads.values())),
    }


def layer_parameters(model: nn.Module) -> int:
    """Parameters of all layers of encoder and decoder; embeddings and final norms are left out."""
    named = model.named_parameters()
    return sum(p.numel() for name, p in named if ".layers." in name and not is_copy(name))


@dataclass(frozen=True)
class Plan:
    """What stays of a trained model.

    Attributes:
        kind: of heads: ``headsize`` (as they are), or another one of :data:`KINDS`.
        retained: heads that stay, by attention type and layer.
        units: feed-forward units that stay, of the blocks that lose some.
        sizes: of the attentions that get heads of this kind: latent widths, key/value heads, key
            widths.
        bits: of a number in the KV cache, where it is rounded.
        shared: whether all cross-attentions with a size have one latent, cached once.
        prices: predicted loss in bits per target token: of heads, units and caches.
        costs: of the smaller model, and ``whole``, that shares are of: cache (bits per token),
            parameters (of all layers), heads.
        time: predicted share of the given model's seconds, where times were measured.
    """

    kind: str
    retained: Retained
    units: RetainedUnits
    sizes: Mapping[Attention, int]
    bits: Mapping[Attention, int]
    prices: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, int] = field(default_factory=dict)
    whole: Mapping[str, int] = field(default_factory=dict)
    time: float | None = None
    shared: bool = False

    @property
    def price(self) -> float:
        """The predicted loss in bits per target token."""
        return sum(self.prices.values())

    def __repr__(self) -> str:
        heads = sum(len(layer) for layers in self.retained.values() for layer in layers)
        cut = [f"{heads} heads", *(f"{b}: {len(u)} units" for b, u in self.units.items())]
        if (kind := KINDS[self.kind]) is not None:
            cut += [f"{a}: {kind.size_name} {size}" for a, size in self.sizes.items()]
        few = f"{', '.join(cut[:4])}{', ...' * (len(cut) > 4)}"
        return f"plan, price: {self.price:.4f} bits per target token\n{few}"

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and names, as the new checkpoint stores them."""
        return {
            "kind": self.kind,
            "heads": {
                type_: [list(of) for of in layers] for type_, layers in self.retained.items()
            },
            "units": {str(block): list(units) for block, units in self.units.items()},
            "sizes": {str(a): size for a, size in self.sizes.items()},
            "bits": {str(a): bits for a, bits in self.bits.items()},
            "prices": dict(self.prices),
            "costs": dict(self.costs),
            "whole": dict(self.whole),
            "time": self.time,
            "shared": self.shared,
        }

    def options(self, trained: Trained) -> dict[str, Any]:
        """The options of the smaller model that say what was cut, as ``fairseq-train`` has them."""
        kind, result = KINDS[self.kind], dict[str, Any]()
        for type_, layers in trained.attentions.items():
            heads = [*map(len, self.retained[type_])]
            if heads != trained.heads[type_]:
                result[f"heads_in_{type_}"] = joined(heads)
            if shared := self._shared(type_):
                result["shared_latent_in_cross"] = shared
            elif kind is not None and any(a in self.sizes for a in layers):
                usual = [kind.usual_size(number) for number in heads]
                sizes = (self.sizes.get(a, size) for a, size in zip(layers, usual, strict=True))
                result[f"{kind.size_option}_in_{type_}"] = joined(sizes)
            if any(self.bits.get(a) for a in layers):
                result[f"cache_bits_in_{type_}"] = joined(self.bits.get(a, 0) for a in layers)
        return result | (width_options(trained, self.units) if self.units else {})

    def _shared(self, type_: str) -> int:
        """The width of the latent that attentions of a type share; 0 where each has its own."""
        if not self.shared or type_ != "cross":
            return 0
        return next(size for a, size in self.sizes.items() if a.type == type_)

    def table(self, trained: Trained) -> list[list[Any]]:
        """A row per site that loses something: what stays of how much; its size; its bits."""
        rows: list[list[Any]] = []
        for type_ in ATTENTION_TYPES:
            for attention in trained.attentions[type_]:
                stays = len(self.retained[type_][attention.layer])
                size, bits = self.sizes.get(attention), self.bits.get(attention)
                if stays < attention.module.num_heads or size or bits:
                    heads = f"{stays} of {attention.module.num_heads} heads"
                    of_all = f"{size}, shared" if self._shared(type_) else size
                    rows.append([str(attention), heads, of_all, bits])
        for block, units in self.units.items():
            rows.append([str(block), f"{len(units)} of {block.width} units", None, None])
        return rows

    def build(
        self, trained: Trained, statistics: Mapping[Attention, Statistics]
    ) -> tuple[Trained, Plan]:
        """The smaller model before the refit, and the plan with the price of its cache."""
        smaller = trained
        counts = {type_: [*map(len, of)] for type_, of in self.retained.items()}
        if self.kind == "headsize" or self.units or counts != smaller.heads:
            smaller = pruned(smaller, self.retained, self.units)
        places = {attention: attention for attention in attentions(smaller.model)}
        sizes = {places[a]: size for a, size in self.sizes.items()}
        bits = {places[a]: number for a, number in self.bits.items()}
        kind = KINDS[self.kind]
        if kind is None:
            return with_bits(smaller, bits), self
        left = {
            places[a]: of_it.of_heads(self.retained[a.type][a.layer])
            for a, of_it in statistics.items()
            if self.retained[a.type][a.layer]
        }
        model, prices = Converter(smaller, kind, left).convert(sizes, bits, self.shared)
        return model, replace(self, prices={**self.prices, "cache": sum(prices.values())})

    def apply(
        self,
        trained: Trained,
        statistics: Mapping[Attention, Statistics],
        batches: Sequence[Mapping[str, Any]],
        before: float | None = None,
    ) -> tuple[Trained, Plan, float]:
        """The smaller model, refitted on ``batches``; the plan; the measured rise on ``batches``.

        Args:
            before: loss of ``trained`` on ``batches`` in bits, where it is known.
        """
        model, plan = self.build(trained, statistics)
        rise = measured_rise(model, trained, batches, plan.price, before=before)
        return model, plan, rise


def with_bits(trained: Trained, bits: Mapping[Attention, int]) -> Trained:
    """The model with these bits in its KV cache."""
    options = dict(trained.options)
    for type_, layers in trained.attentions.items():
        if type_ != "encoder" and layers:
            of_layers = [bits.get(a, 0) for a in layers]
            options[f"cache_bits_in_{type_}"] = joined(of_layers) if any(of_layers) else None
    return rebuilt(trained, {**options, "cache_bits": "0"}, weights_of(trained))


# ---- the cheapest plan ---------------------------------------------------------------------------


def propose(
    trained: Trained,
    statistics: Mapping[Attention, Statistics],
    units: Mapping[FeedForward, UnitStatistics],
    shares: Mapping[str, float],
    *,
    cuts: Iterable[str] = CUTS,
    kinds: Iterable[str] | None = None,
    bits: Sequence[int] = ANY_BITS,
    engine: str = "fairseq",
    times: Times | None = None,
    known: Known | None = None,
) -> Plan:
    """The plan of least price that leaves at most these shares of the model's costs.

    Args:
        shares: of cache, parameters, heads: see :func:`whole_costs`; of the model's time.
        cuts: what may be cut: heads, units, cache.
        kinds: of heads, for a smaller cache; default: :data:`USUAL_KINDS`.
        bits: that a number of a smaller cache may have; 0: no rounding.
        engine: of :data:`ENGINES`; CTranslate2 keeps no latents and no rounding, and one number of
            heads for the encoder, another for the decoder.
        times: measured, where there is a share of the time.
        known: prices that plans of one model share.

    Raises:
        UserError: no plan is within the budgets.
    """
    candidates, reasons, known = list[Plan](), list[str](), known or Known()
    kinds = USUAL_KINDS[engine] if kinds is None else kinds
    bits = (0,) if engine == "ct2" else bits
    how: dict[str, Any] = {"multiple": ENGINES[engine], "bits": bits, "times": times}
    for kind in kinds if "cache" in cuts else ("headsize",):
        try:
            found = Programme(trained, statistics, units, kind, tuple(cuts), known=known, **how)
            candidates.append(found.solve_even(shares) if engine == "ct2" else found.solve(shares))
        except UserError as error:
            reasons.append(f"{kind}: {'; '.join(filter(None, (error.problem, error.todo)))}")
    if not candidates:
        raise UserError(f"cannot have {spelled(shares)}", trained.path, "; ".join(reasons))
    return min(candidates, key=lambda plan: plan.price)


@dataclass
class Known:
    """Prices of one model that several of its plans share, filled in when a plan needs them."""

    removals: dict[Site, Removals] = field(default_factory=dict)
    rounding: dict[Attention, dict[int, float]] = field(default_factory=dict)
    converters: dict[str, Converter] = field(default_factory=dict)

    def removals_of(self, site: Site, statistics: Statistics | UnitStatistics) -> Removals:
        """The order of a site's heads or units."""
        if site not in self.removals:
            self.removals[site] = removals_of(site, statistics)
        return self.removals[site]

    def rounding_of(self, attention: Attention, statistics: Statistics) -> dict[int, float]:
        """Prices of rounding what the heads cache as they are, by bits."""
        if attention not in self.rounding:
            of_heads = TrainedAttention(attention.module, statistics)
            prices = of_heads.rounding_prices(None, ANY_BITS)
            self.rounding[attention] = dict(zip(ANY_BITS, prices, strict=True))
        return self.rounding[attention]


class Programme:
    """The choices of all sites of a model with one kind of heads."""

    def __init__(
        self,
        trained: Trained,
        statistics: Mapping[Attention, Statistics],
        units: Mapping[FeedForward, UnitStatistics],
        kind: str,
        cuts: Sequence[str] = CUTS,
        multiple: int = MULTIPLE,
        bits: Sequence[int] = ANY_BITS,
        times: Times | None = None,
        known: Known | None = None,
    ):
        known = known or Known()
        self.trained, self.kind, self.times = trained, kind, times
        statistics = matched(statistics, trained)
        if {"heads", "units"} & {*cuts}:
            check_heads(self.trained)
        self.whole = whole_costs(self.trained)
        unrounded = totals(self.trained.model, rounded=False)["cache"]
        self.costs = costs(self.trained) | {"cache": unrounded}
        if times is not None:
            self.whole["time"], self.costs["time"] = PARTS, round(PARTS * times.uncut)
        own = {a: a for a in attentions(self.trained.model) if a.module.num_heads}
        self.removals: dict[Site, Removals] = {
            a: known.removals_of(a, of_it) for a, of_it in statistics.items()
        }
        of_size, converter = KINDS[kind], None
        if "cache" in cuts:
            check_of_caches(statistics, trained)
            if of_size is not None and kind not in known.converters:
                known.converters[kind] = Converter(trained, of_size, statistics)
            converter = known.converters.get(kind)
        self.choices: dict[Site, list[Choice]] = {}
        first = next((a for a in own if a.type == "cross"), None)
        for a in bar("sizes", list(own)):
            heads = a.module.num_heads
            # Cross-attention without heads would leave a layer without the source.
            step = heads_together(a.module)
            least = step if a.type == "cross" else 0
            counts = range(heads, least - 1, -step) if "heads" in cuts else [heads]
            rounding, allowed = {own_bits(a.module): 0.0}, [own_bits(a.module)]
            if "cache" in cuts and a.type != "encoder":
                rounding, allowed = known.rounding_of(a, statistics[a]), [*bits]
            caches = caches_of(a, rounding, converter, allowed)
            self.choices[a] = attention_choices(
                a, self.removals[a], counts, caches, of_size, times, has_copy=a == first
            )
        if "units" in cuts:
            for block in bar("units", feed_forwards(self.trained.model)):
                self.removals[block] = known.removals_of(block, units[block])
                self.choices[block] = unit_choices(block, self.removals[block], multiple, times)

    def solve_even(self, shares: Mapping[str, float]) -> Plan:
        """The cheapest plan with one number of heads in the encoder, and one in the decoder."""
        plans, every, problem = list[Plan](), self.choices, UserError("no heads")
        sides = [
            {c.number for a, of in every.items() if is_side(a) for c in of}
            for is_side in (_is_encoder, _is_decoder)
        ]
        pairs = list(product(*(sorted(side - {0}) or [0] for side in sides)))
        for encoder, decoder in bar("plans", pairs):
            self.choices = {
                site: [
                    choice
                    for choice in of
                    if isinstance(site, FeedForward)
                    or choice.number == (encoder if _is_encoder(site) else decoder)
                ]
                for site, of in every.items()
            }
            try:
                plans.append(self.solve(shares))
            except UserError as error:
                problem = error
        self.choices = every
        if not plans:
            raise problem
        return min(plans, key=lambda plan: plan.price)

    def solve(self, shares: Mapping[str, float]) -> Plan:
        """The cheapest plan within the budgets; UserError if there is none."""
        if unknown := sorted({*shares} - {*RESOURCES}):
            raise UserError(f"{unknown[0]!r} is none of {', '.join(RESOURCES)}")
        budgets = {
            name: int(share * self.whole[name] + 1e-6) - self._fixed(name)
            for name, share in shares.items()
        }
        chosen = cheapest(self.choices, budgets)
        if chosen is None:
            least = {name: self._least(name) for name in shares}
            raise UserError(f"cannot have {spelled(shares)}", todo=f"the least is {spelled(least)}")
        return self._plan(chosen)

    def _fixed(self, name: str) -> int:
        """The cost of what has no choices."""
        return self.costs[name] - sum(getattr(uncut(site), name) for site in self.choices)

    def _least(self, name: str) -> float:
        """The least share, whichever copy the cross-attentions have in common."""
        sums = list[int]()
        for copy in {copy_of(choice) for of in self.choices.values() for choice in of}:
            left = [
                [c for c in of if copy_of(c) == copy or not any(c.shared for c in of)]
                for of in self.choices.values()
            ]
            if all(left):
                sums.append(sum(min(getattr(c, name) for c in of) for of in left))
        return math.ceil(1000 * (self._fixed(name) + min(sums)) / self.whole[name]) / 1000

    def _plan(self, chosen: Mapping[Site, Choice]) -> Plan:
        retained, units = all_heads(self.trained.heads), dict[FeedForward, list[int]]()
        sizes, bits = dict[Attention, int](), dict[Attention, int]()
        prices = {"heads": 0.0, "units": 0.0, "cache": 0.0}
        for site, choice in chosen.items():
            removals = self.removals[site]
            gone = removals.prices[len(removals.order) - choice.number]
            if isinstance(site, FeedForward):
                prices["units"] += gone
                if choice.number < site.width:
                    units[site] = removals.retained(choice.number)
                continue
            prices["heads"] += gone
            prices["cache"] += choice.price - gone
            retained[site.type][site.layer] = removals.retained(choice.number)
            if choice.size:
                sizes[site] = choice.size
            if choice.bits:
                bits[site] = choice.bits
        costs = {
            name: self._fixed(name) + sum(getattr(c, name) for c in chosen.values())
            for name in self.whole
        }
        whole = dict(self.whole)
        time = costs.pop("time") / whole.pop("time") if self.times is not None else None
        shared = any(choice.shared and choice.size for choice in chosen.values())
        return Plan(self.kind, retained, units, sizes, bits, prices, costs, whole, time, shared)


def spelled(shares: Mapping[str, float]) -> str:
    """Shares of costs: ``cache=0.5 parameters=0.8``."""
    return " ".join(f"{resource}={share:g}" for resource, share in shares.items())


def _is_encoder(site: Site) -> bool:
    return isinstance(site, Attention) and site.type == "encoder"


def _is_decoder(site: Site) -> bool:
    return isinstance(site, Attention) and site.type != "encoder"
