"""A model with other heads, or with fewer, as stated: what papers do, and two commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError, reject_unused
from collab_lab.mathematics.rise import measured_rise
from collab_lab.shrinking import head_choices, surgery
from collab_lab.shrinking.converter import Converter, check, chosen_bits, chosen_sizes
from collab_lab.shrinking.kinds import HEAD_KINDS, Collaborative
from collab_lab.statistics.attentions import Statistics, collect_all, matched
from collab_lab.trained.arguments import check_model, check_whole, sentences_of
from collab_lab.trained.attentions import Attention, Retained
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.collaborative import QUERY_MIXINGS


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
    query_mixing: str | None = None,
    cache_bits: str | int | None = "auto",
    refit: bool = True,
    statistics: Mapping[Attention, Statistics] | None = None,
    subset: str = "train",
    sentences: int = 1000,
) -> Converted:
    """Convert a trained model's heads to others of given sizes, with the least predicted loss.

    :func:`.shrink` chooses sizes and bits for a share of the KV cache.

    Args:
        to: ``collab`` (shared keys), ``headsize`` (narrower separate keys), ``grouped-query`` or
            ``latent``.
        size: of all attentions: key width in all, number of key/value heads, or latent width.
        by_type: sizes by attention type: a number, or one per layer (``"64,32"``); 0 leaves the
            heads as they are.
        query_mixing: of shared keys: ``own`` (default), ``full`` or ``diagonal``.
        cache_bits: of a number in the KV cache: 8, 4, or None for no rounding; or a text with one
            for each cache (``"4,8"``: decoder layers, then cross-attention; 0 for no rounding).
            ``auto`` leaves them.
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
    if to not in [*HEAD_KINDS]:
        raise UserError(f"{to!r} is none of {', '.join(HEAD_KINDS)}", "`to`")
    if query_mixing not in (None, *QUERY_MIXINGS):
        problem = f"{query_mixing!r} is none of {', '.join(QUERY_MIXINGS)}"
        raise UserError(problem, "`query_mixing`")
    if to != "collab":
        reject_unused("needs `to` collab", query_mixing=query_mixing)
    kind = Collaborative(query_mixing or "own") if to == "collab" else HEAD_KINDS[to]()
    named = sizes_by_type(by_type)
    if kind.one_size:
        given = {f"`by_type[{type_}]`": value for type_, value in named.items()}
        reject_unused("does not go with `to` headsize: give `size`", **given)
    if size is None and not named:
        raise UserError("give sizes: `size` or `by_type`")
    check_whole(size=size)
    check_model(model)
    check(model, kind)
    bits = None if cache_bits == "auto" else chosen_bits(cache_bits, model)
    sizes = chosen_sizes(size, named, model, kind)
    if not (sizes or bits):
        todo = "every size is 0: give at least one"
        raise UserError("no attention is left to convert", model.path, todo)
    batches = sentences_of(model, subset, sentences)
    found, loss = statistics, None
    if found is None:
        found, _, loss = collect_all(model, batches, cuts=("heads", "cache"))
    converter = Converter(model, kind, found)
    bits = converter.own_bits if bits is None else bits
    result, prices_of = converter.convert(sizes, bits)
    price = sum(prices_of.values())
    rise = measured_rise(result, model, batches, price, fit=refit, before=loss)
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
        UserError: a group would keep a part of its heads, there are fewer heads, none would be left
            in the model or in its cross-attention, the statistics are of another model, or an
            argument has no effect.
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
    batches, price, loss = sentences_of(model, subset, sentences), None, None
    whole = head_choices.without_gates(model)
    if retained is None:
        if random is not None:
            order = head_choices.random_removals(model, random)
        else:
            found = statistics
            if found is None:
                found, _, loss = collect_all(model, batches, cuts=("heads",))
            order = head_choices.removals(matched(found, model))
        order = [removal for removal in order if removal.attention.type in heads]
        if same_on_each_side:
            order = head_choices.equal_on_each_side(order, number or 0)
        else:
            order = order[:number] if keep is None else head_choices.down_to(keep, order)
        retained, predicted = head_choices.without(model.heads, order)
        price = predicted if random is None else None
    result = surgery.pruned(whole, retained)
    rise = measured_rise(result, whole, batches, price, fit=refit, before=loss)
    return Pruned(result, retained, price, rise)


# ---- arguments -----------------------------------------------------------------------------------


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
