"""Prices of the parts of a trained model, and smaller models: what the commands of this name do."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from itertools import chain
from numbers import Integral, Real
from typing import Any, NamedTuple

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError, reject_unused
from collab_lab.conversion.converter import Converter, check, chosen_bits, chosen_sizes
from collab_lab.conversion.kinds import TARGETS, Collaborative, GroupedQuery, Latent, Narrower
from collab_lab.metrics.loss import mean_bits
from collab_lab.pricing.bits import Point
from collab_lab.pricing.heads import head_noises, head_prices
from collab_lab.pricing.removal import removal_order
from collab_lab.pricing.statistics import Statistics, collect, collect_all, matched
from collab_lab.pricing.unit_statistics import UnitStatistics
from collab_lab.pruning import choices, surgery
from collab_lab.pruning.surgery import Retained
from collab_lab.rise import measured_rise
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained, samples
from collab_lab.trained.feed_forward import FeedForward
from fairseq_collab.attention.collaborative import QUERY_MIXINGS

#: Kinds of heads that :func:`prices` tells the prices of.
PRICED = {
    "latent": Latent(),
    "own": Collaborative(),
    "grouped-query": GroupedQuery(),
    "headsize": Narrower(),
}


class Prices(NamedTuple):
    """What the parts of a model are worth, in bits per target token.

    Attributes:
        statistics: of each attention with heads; ``convert`` and ``prune`` take them,
            and :mod:`.pricing.stored` writes and reads them.
        units: statistics of each feed-forward block.
        converters: by kind of heads: latent, own (a shared key, own queries), grouped-query,
            headsize (the same heads, for the bits of their cache).
        impossible: by kind, why the model cannot have such heads.
        sentences: number that were read.
    """

    statistics: dict[Attention, Statistics]
    converters: dict[str, Converter]
    impossible: dict[str, str]
    sentences: int
    units: dict[FeedForward, UnitStatistics]

    def __repr__(self) -> str:
        heads = [(price, str(a)) for a in self.statistics for price in self.heads(a)]
        kinds = ", ".join([*self.converters, *(f"no {kind}" for kind in self.impossible)])
        read = f"from {self.sentences} sentences"
        return (
            f"prices of {len(self.statistics)} attentions, {read}: {kinds}\n"
            f"removed heads: {min(heads)[0]:.2g} bits ({min(heads)[1]}) to {max(heads)[0]:.2g} "
            f"({max(heads)[1]})"
        )

    def heads(self, attention: Attention) -> list[float]:
        """The price of removing each head alone."""
        return head_prices(attention.module, self.statistics[attention])

    def noises(self, attention: Attention) -> list[float]:
        """The standard error of each of these prices, from two halves of the sentences.

        NaN if there was a single sentence.
        """
        return head_noises(attention.module, self.statistics[attention])

    def narrower(self, block: FeedForward, share: float) -> float:
        """The price of a feed-forward block that keeps a share of its units, the best of them."""
        units = self.units[block]
        weight, covariance = block.module.fc2.weight.detach().double(), units.ridged().covariance
        order = removal_order(weight, covariance, units.output_fisher)
        number = block.width - round(share * block.width)
        return sum(rise for rise, _ in itertools.islice(order, number))

    def sizes(self, attention: Attention, bits: int = 0) -> dict[str, list[Point]]:
        """By kind of heads, costs and prices at up to 16 sizes, ascending to the exact one.

        Args:
            bits: of a number in the KV cache: 8, 4, or 0 without rounding.
        """
        return {
            kind: [point for point in converter.curve(attention) if point.bits == bits]
            for kind, converter in self.converters.items()
            if bits or kind != "headsize"
        }


def prices(model: Trained, *, subset: str = "train", sentences: int = 1000) -> Prices:
    """Predict the price of every narrower key, latent, group, rounded cache and missing head.

    Args:
        subset, sentences: set, and number of them evenly spread over it, for one forward and
            backward pass.

    Raises:
        UserError: the model has no heads, or no sentence is short enough.
    """
    batches = read(model, subset, sentences)
    statistics, units = collect_all(model, batches)
    converters, impossible = {}, {}
    for kind, target in PRICED.items():
        try:
            converters[kind] = Converter(model, target, statistics)
        except UserError as error:
            impossible[kind] = error.problem
    number = sum(len(batch["target"]) for batch in batches)
    return Prices(statistics, converters, impossible, number, units)


class Converted(NamedTuple):
    """A converted model; by attention, its new sizes and prices in bits per target token.

    Attributes:
        bits: of the numbers in its KV cache, where these are rounded.
        rise: of the loss on the calibration sentences, measured, in bits per target token.
    """

    model: Trained
    sizes: dict[Attention, int]
    prices: dict[Attention, float]
    bits: dict[Attention, int]
    rise: float

    def __repr__(self) -> str:
        rounded = f"; bits: {in_order(self.bits)}" if self.bits else ""
        return (
            f"{self.model.arch}, price: {self.price:.4f} bits per target token\n"
            f"sizes: {in_order(self.sizes) or 'as they are'}{rounded}"
        )

    @property
    def price(self) -> float:
        """The predicted loss."""
        return sum(self.prices.values())


def convert(
    model: Trained,
    to: str = "collab",
    size: int | None = None,
    *,
    by_type: Mapping[AttentionType, int | str | None] | None = None,
    cache: float | None = None,
    query_mixing: str | None = None,
    cache_bits: str | int | None = "auto",
    refit: bool = True,
    statistics: Mapping[Attention, Statistics] | None = None,
    subset: str = "train",
    sentences: int = 1000,
) -> Converted:
    """Convert a trained model's heads to others with the least predicted loss.

    Args:
        to: ``collab`` (shared keys), ``headsize`` (narrower separate keys), ``grouped-query`` or
            ``latent``.
        size: of all attentions: key width in all, number of key/value heads, or latent width.
        by_type: sizes by attention type: a number, or one per layer (``"64,32"``); 0 leaves the
            heads as they are.
        cache: in place of sizes, what is to remain of the bytes of the whole model's KV cache in
            16-bit numbers (0 to 1), scales and offsets included; sizes are spread at the least
            price.
        query_mixing: of shared keys: ``own`` (default), ``full`` or ``diagonal``.
        cache_bits: of a number in the KV cache: 8, 4, or None for no rounding; or a text with one
            for each cache (``"4,8"``: decoder layers, then cross-attention; 0 for no rounding).
            ``auto`` chooses them for each attention where a share of the cache is given, and else
            leaves them.
        refit: whether to fit the new heads' outputs (:mod:`.refit`), where that lowers the loss on
            the calibration sentences.
        statistics: of :func:`prices` of this model, which may have been opened again; default: a
            pass over the sentences.
        subset, sentences: calibration sentences, for prices, the refit and the measured rise: set,
            and number of them evenly spread over it.

    Raises:
        UserError: the model has no counterpart, a size or share is out of range, the statistics
            are of another model, or an argument has no effect.
    """
    if to not in [*TARGETS]:
        raise UserError(f"{to!r} is none of {', '.join(TARGETS)}", "`to`")
    if query_mixing not in (None, *QUERY_MIXINGS):
        problem = f"{query_mixing!r} is none of {', '.join(QUERY_MIXINGS)}"
        raise UserError(problem, "`query_mixing`")
    if to != "collab":
        reject_unused("needs `to` collab", query_mixing=query_mixing)
    target = Collaborative(query_mixing or "own") if to == "collab" else TARGETS[to]()
    named = sizes_by_type(by_type)
    if target.one_size:
        given = {f"`by_type[{type_}]`": value for type_, value in named.items()}
        reject_unused("does not go with `to` headsize: give `size`", **given)
    if (size is not None or bool(named)) + (cache is not None) != 1:
        raise UserError("give either `cache` or sizes (`size` or `by_type`)")
    check_whole(size=size)
    if not (cache is None or (isinstance(cache, Real) and 0 <= cache <= 1)):
        raise UserError(f"must be a number from 0 to 1, not {cache!r}", "`cache`")
    check_model(model)
    check(model, target)
    bits = None if cache_bits == "auto" else chosen_bits(cache_bits, model)
    sizes = chosen_sizes(size, named, model, target) if cache is None else {}
    if cache is None and not (sizes or bits):
        todo = "every size is 0: give at least one"
        raise UserError("no attention is left to convert", model.path, todo)
    batches = read(model, subset, sentences)
    found = collect(model, batches) if statistics is None else statistics
    converter = Converter(model, target, found)
    if cache is not None:
        sizes, bits, _ = converter.spread({"cache": cache}, bits)
    elif bits is None:
        bits = converter.own_bits
    result, prices_of = converter.convert(sizes, bits)
    rise = measured_rise(result, model, batches, sum(prices_of.values()), fit=refit)
    return Converted(result, sizes, prices_of, bits, rise)


class Pruned(NamedTuple):
    """A model without some heads: those retained, by attention type and layer, from 0.

    Attributes:
        price: predicted loss in bits per target token; None where heads were not chosen by price.
        rise: of the loss on the calibration sentences, measured, in bits per target token.
    """

    model: Trained
    retained: Retained
    price: float | None
    rise: float

    def __repr__(self) -> str:
        price = "" if self.price is None else f", price: {self.price:.4f} bits per target token"
        layers = {
            type_: " / ".join(" ".join(map(str, heads)) or "-" for heads in of_type)
            for type_, of_type in self.retained.items()
            if of_type
        }
        return (
            f"{self.model.arch}{price}\n"
            f"heads: {', '.join(f'{type_} {heads}' for type_, heads in layers.items())}"
        )


def prune(
    model: Trained,
    number: int | None = None,
    *,
    keep: int | None = None,
    same_on_each_side: bool = False,
    retained: Retained | None = None,
    types: Sequence[AttentionType] | None = None,
    random: int | None = None,
    refit: bool = True,
    statistics: Mapping[Attention, Statistics] | None = None,
    subset: str = "train",
    sentences: int = 1000,
) -> Pruned:
    """Remove heads from a trained model: those of least price, unless other arguments choose.

    Gates are multiplied into the weights first.  In the end maps are fitted to what the heads that
    are left compute (:mod:`.refit`), whatever chose them.

    Args:
        number: of heads to remove from the whole model.
        keep: number of heads that each attention keeps instead.
        same_on_each_side: remove at least ``number`` heads; the attentions of the encoder keep
            equally many, and so do those of the decoder.
        retained: the heads to keep instead, by attention type and layer.
        types: attention types that lose heads; default: all.
        random: seed of a random choice instead.
        refit: whether to fit the maps, where that lowers the loss on the calibration sentences.
        statistics: of :func:`prices` of this model, which may have been opened again; default: a
            pass over the sentences.
        subset, sentences: calibration sentences, for prices, the refit and the measured rise: set,
            and number of them evenly spread over it.

    Raises:
        UserError: heads share projections, there are fewer heads, none would be left in the model
            or in its cross-attention, the statistics are of another model, or an argument has no
            effect.
    """
    if [number, keep, retained].count(None) != 2:
        problem = "give one of: a number of heads to remove, a number to keep, the heads to keep"
        raise UserError(problem)
    same = same_on_each_side or None
    if retained is not None:
        reason = "has no effect where the heads are given"
        reject_unused(reason, types=types, random=random, same_on_each_side=same)
    if same:
        reject_unused("contradicts `same_on_each_side`", keep=keep, types=types)
    if retained is not None or random is not None:
        reject_unused("is of the choice by price", statistics=statistics)
    check_whole(number=number, keep=keep, random=random)
    check_model(model)
    surgery.check_heads(model)
    if retained is not None:
        check_lists(retained)
    named = ATTENTION_TYPES if types is None else types
    if isinstance(named, str) or not {*named} <= {*ATTENTION_TYPES}:
        problem = f"must be a list of some of {', '.join(ATTENTION_TYPES)}, not {types!r}"
        raise UserError(problem, "`types`")
    heads = {type_: model.heads.get(type_, []) for type_ in named}
    for type_ in types or ():
        if not heads[type_]:
            raise UserError(f"the model has no {type_} attention", model.path, "change `types`")
    counts = [*chain.from_iterable(heads.values())]
    few = keep is not None and not 1 <= keep <= min(counts, default=0)
    if few or not 0 <= (number or 0) <= sum(counts):
        asked = f"remove {number} heads" if keep is None else f"keep {keep} heads of each"
        raise UserError(f"cannot {asked}: it has {heads} by layer", model.path)
    batches, whole, price = read(model, subset, sentences), choices.without_gates(model), None
    if retained is None:
        if random is not None:
            order = choices.random_removals(model, random)
        else:
            found = collect(model, batches) if statistics is None else statistics
            order = choices.removals(matched(found, model))
        order = [removal for removal in order if removal.attention.type in heads]
        if same_on_each_side:
            order = choices.equal_on_each_side(order, number or 0)
        else:
            order = order[:number] if keep is None else choices.down_to(keep, order)
        retained, predicted = choices.without(model.heads, order)
        price = predicted if random is None else None
    result = surgery.pruned(whole, retained)
    rise = measured_rise(result, whole, batches, price, fit=refit)
    return Pruned(result, retained, price, rise)


def validation_loss(model: Trained, batches: Sequence[Mapping[str, Any]] | None = None) -> float:
    """The loss on the validation set, in bits per target token, without label smoothing.

    Args:
        batches: other sentences, as :func:`.checkpoint.samples` returns them.

    Raises:
        UserError: there are no sentences, or no validation set.
    """
    check_model(model)
    batches = read(model, "valid", None) if batches is None else batches
    if not batches:
        raise UserError("hold no sentence", "`batches`")
    return mean_bits(model.model, batches)


# ---- arguments -----------------------------------------------------------------------------------


def read(model: Trained, subset: str, sentences: int | None) -> list[dict[str, Any]]:
    """Sentences of a subset, spread evenly, or all; UserError for a subset that does not exist."""
    check_model(model)
    check_whole(sentences=sentences)
    if sentences is not None and sentences < 1:
        raise UserError(f"must be a whole number above 0, not {sentences}", "`sentences`")
    try:
        return samples(model, subset, sentences)
    except FileNotFoundError as error:  # fairseq's
        raise UserError(f"{subset!r} is no subset of {model.cfg.task.data}", "`subset`") from error


def check_model(model: Any) -> None:
    """Raise UserError for what is no opened checkpoint."""
    if not isinstance(model, Trained):
        raise UserError(f"must be what open_model returns, not {model!r:.60}", "`model`")


def check_whole(**arguments: Any) -> None:
    """Raise UserError for the first argument that is given, and no whole number."""
    for name, value in arguments.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise UserError(f"must be a whole number, not {value!r}", f"`{name}`")


def sizes_by_type(given: Any) -> dict[AttentionType, int | str]:
    """The sizes that are given by attention type; UserError for what is no size."""
    if not isinstance(given, Mapping | None):
        raise UserError(f'must be such as {{"cross": 64}}, not {given!r}', "`by_type`")
    named = {type_: value for type_, value in (given or {}).items() if value is not None}
    for type_, value in named.items():
        if type_ not in ATTENTION_TYPES:
            raise UserError(f"{type_!r} is none of {', '.join(ATTENTION_TYPES)}", "`by_type`")
        if isinstance(value, bool) or not isinstance(value, Integral | str):
            problem = f'must be a number, or one per layer in a text ("64,32"), not {value!r}'
            raise UserError(problem, f"`by_type[{type_}]`")
    return named


def check_lists(retained: Any) -> None:
    """Raise UserError unless these are numbers by attention type and layer."""
    try:
        numbers = [head for layers in retained.values() for layer in layers for head in layer]
    except (AttributeError, TypeError):
        numbers = [None]
    if not all(isinstance(number, Integral) for number in numbers):
        wanted = 'numbers by type and layer, such as {"cross": [[0, 2], [1]]}'
        raise UserError(f"must be {wanted}, not {retained!r}", "`retained`")


# ---- in two lines --------------------------------------------------------------------------------


def in_order(values: Mapping[Attention, Any]) -> str:
    """Values by attention type and layer: ``decoder 64 32, cross 96 64``."""
    types = {type_: [a for a in values if a.type == type_] for type_ in ATTENTION_TYPES}
    return ", ".join(
        f"{type_} {' '.join(str(values[a]) for a in found)}"
        for type_, found in types.items()
        if found
    )
