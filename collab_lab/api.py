"""Prices of the parts of a trained model, and smaller models: what the commands of this name do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from collab_common import AttentionType
from collab_common.errors import UserError, reject_unused
from collab_lab.conversion import check_arguments as conversion_arguments
from collab_lab.conversion.base import Conversion
from collab_lab.conversion.converter import Converter, check, chosen_sizes
from collab_lab.conversion.kinds import TARGETS
from collab_lab.metrics.loss import mean_bits
from collab_lab.pricing.bits import Point, head_prices
from collab_lab.pricing.statistics import Statistics, collect, matched
from collab_lab.pruning import check_arguments as pruning_arguments
from collab_lab.pruning import choices, surgery
from collab_lab.pruning.surgery import Retained
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained, samples

#: Kinds of heads that :func:`prices` tells the prices of.
PRICED = {
    "latent": Conversion("latent"),
    "own": Conversion("collab"),
    "grouped-query": Conversion("grouped-query"),
}


class Prices(NamedTuple):
    """What the parts of a model are worth, in bits per target token.

    Attributes:
        statistics: of each attention with heads; ``convert`` and ``prune`` take them.
        converters: by kind of heads: latent, own (a shared key, own queries), grouped-query.
        impossible: by kind, why the model cannot have such heads.
        sentences: number that were read.
    """

    statistics: dict[Attention, Statistics]
    converters: dict[str, Converter]
    impossible: dict[str, str]
    sentences: int

    def heads(self, attention: Attention) -> list[float]:
        """The price of removing each head alone."""
        self._check(attention)
        prices: list[float] = head_prices(self.statistics[attention].head_fisher).tolist()
        return prices

    def sizes(self, attention: Attention) -> dict[str, list[Point]]:
        """By kind of heads, costs and prices at up to 16 sizes, ascending to the exact one."""
        self._check(attention)
        return {kind: converter.curve(attention) for kind, converter in self.converters.items()}

    def _check(self, attention: Attention) -> None:
        if attention not in self.statistics:
            todo = "give a key of its statistics: for attention in PRICES.statistics"
            raise UserError(f"no attention with heads: {attention}", "prices", todo)

    def __repr__(self) -> str:
        known = f"{len(self.statistics)} attentions, {', '.join(self.converters)}"
        return f"Prices({known}; {self.sentences} sentences)"


def prices(model: Trained, *, subset: str = "train", sentences: int = 1000) -> Prices:
    """Predict the price of every narrower key, latent, group and missing head.

    Args:
        subset, sentences: set, and number of them evenly spread over it, for one forward and
            backward pass.

    Raises:
        UserError: the model has no heads, or no sentence is short enough.
    """
    batches = samples(model, subset, sentences)
    statistics = collect(model, batches)
    converters, impossible = {}, {}
    for kind, conversion in PRICED.items():
        try:
            converters[kind] = Converter(model, conversion, statistics)
        except UserError as error:
            impossible[kind] = error.problem
    return Prices(statistics, converters, impossible, sum(len(b["target"]) for b in batches))


class Converted(NamedTuple):
    """A converted model; by attention, its new sizes and prices in bits per target token."""

    model: Trained
    sizes: dict[Attention, int]
    prices: dict[Attention, float]

    @property
    def price(self) -> float:
        """The predicted loss."""
        return sum(self.prices.values())

    def __repr__(self) -> str:
        sizes = ", ".join(f"{attention}: {size}" for attention, size in self.sizes.items())
        return f"Converted({self.model.arch}; {sizes}; {self.price:.4f} bits)"


def convert(
    model: Trained,
    to: str = "collab",
    size: int | None = None,
    *,
    by_type: Mapping[AttentionType, int | str | None] | None = None,
    shares: Mapping[str, float] | None = None,
    query_mixing: str | None = None,
    value_heads: int | None = None,
    statistics: Mapping[Attention, Statistics] | None = None,
    subset: str | None = None,
    sentences: int | None = None,
) -> Converted:
    """Convert a trained model's heads to others with the least predicted loss.

    Args:
        to: ``collab`` (shared keys), ``headsize`` (narrower separate keys), ``grouped-query`` or
            ``latent``.
        size: of all attentions: key width in all, number of key/value heads, or latent width.
        by_type: sizes by attention type: a number, or one per layer (``"64,32"``); 0 leaves the
            heads as they are.
        shares: in place of sizes, what is to remain of the whole model's ``cache``, ``parameters``
            or ``multiply-adds`` (0 to 1); sizes are spread at the least price.
        query_mixing: of shared keys: ``own`` (default), ``full`` or ``diagonal``.
        value_heads: of shared keys: number of values; None leaves them.
        statistics: of :func:`prices` of this model, which may have been opened again.
        subset, sentences: without statistics: of the pass; default: 1,000 of ``train``.

    Raises:
        UserError: the model has no counterpart, a size or share is out of range, the statistics
            are of another model, or an argument has no effect.
    """
    conversion_arguments(to, size, by_type or {}, shares or {}, query_mixing, value_heads)
    conversion = Conversion(to, query_mixing or "own", value_heads)
    target = TARGETS[to](conversion)
    check(model, target)
    sizes = {} if shares else chosen_sizes(size, by_type or {}, model, target)
    statistics = _statistics(model, statistics, subset, sentences)
    converter = Converter(model, conversion, statistics)
    if shares:
        sizes = converter.spread(shares)
    result, prices_of = converter.convert(sizes)
    return Converted(result, sizes, prices_of)


class Pruned(NamedTuple):
    """A model without some heads: those retained, by attention type and layer, from 0.

    Attributes:
        price: predicted loss in bits per target token; None where heads were not chosen by price.
    """

    model: Trained
    retained: Retained
    price: float | None

    def __repr__(self) -> str:
        price = "" if self.price is None else f"; {self.price:.4f} bits"
        return f"Pruned({self.model.arch}; retained {self.retained}{price})"


def prune(
    model: Trained,
    number: int | None = None,
    *,
    keep: int | None = None,
    same_on_each_side: bool = False,
    retained: Retained | None = None,
    types: Sequence[AttentionType] | None = None,
    importances: choices.Importances | None = None,
    statistics: Mapping[Attention, Statistics] | None = None,
    subset: str | None = None,
    sentences: int | None = None,
) -> Pruned:
    """Remove heads from a trained model: those of least price, unless other arguments choose.

    Gates are multiplied into the weights first.

    Args:
        number: of heads to remove from the whole model.
        keep: number of heads that each attention keeps instead.
        same_on_each_side: remove at least ``number`` heads; the attentions of the encoder keep
            equally many, and so do those of the decoder.
        retained: the heads to keep instead, by attention type and layer.
        types: attention types that lose heads; default: all.
        importances: of each head, by attention type and layer: the least important ones go.
        statistics: of :func:`prices` of this model, which may have been opened again.
        subset, sentences: without statistics: of the pass; default: 1,000 of ``train``.

    Raises:
        UserError: heads share projections, there are fewer heads, none would be left in the model
            or in its cross-attention, the statistics are of another model, or an argument has no
            effect.
    """
    pruning_arguments(
        number=number, keep=keep, retained=retained, types=types, importances=importances,
        statistics=statistics, subset=subset, sentences=sentences,
        same_on_each_side=same_on_each_side,
    )  # fmt: skip
    surgery.check_heads(model)
    model = choices.without_gates(model)
    if retained is not None:
        return Pruned(surgery.pruned(model, retained), retained, None)
    heads = choices.heads_of_types(model, types)
    if keep is not None:
        choices.check_enough(heads, keep)
    elif not 0 <= (number or 0) <= sum(map(sum, heads.values())):
        raise UserError(f"cannot remove {number} heads: it has {heads} by layer", model.path)
    if importances is not None:
        pairs = choices.on_diagonals(importances, model)
    else:
        statistics = _statistics(model, statistics, subset, sentences)
        pairs = {attention: fisher.head_fisher for attention, fisher in statistics.items()}
    pairs = {attention: fisher for attention, fisher in pairs.items() if attention.type in heads}
    if keep is not None:
        retained, price = choices.cheapest_of_each(model.heads, pairs, keep)
    elif same_on_each_side:
        orders = {attention: choices.removals({attention: m}) for attention, m in pairs.items()}
        retained, price = choices.equal_on_each_side(model.heads, orders, number or 0)
    else:
        retained, price = choices.cheapest(model.heads, pairs, number or 0)
    result = surgery.pruned(model, retained, statistics)
    return Pruned(result, retained, None if statistics is None else price)


def _statistics(
    model: Trained,
    statistics: Mapping[Attention, Statistics] | None,
    subset: str | None = None,
    sentences: int | None = None,
) -> dict[Attention, Statistics]:
    """The statistics that are given, checked, or those of a pass."""
    if statistics is not None:
        reason = "has no effect with statistics, which are given"
        reject_unused(reason, subset=subset, sentences=sentences)
    else:
        batches = samples(model, subset or "train", 1000 if sentences is None else sentences)
        statistics = collect(model, batches)
    return matched(statistics, model)


def validation_loss(model: Trained, batches: Sequence[Mapping[str, Any]] | None = None) -> float:
    """The loss on the validation set, in bits per target token, without label smoothing.

    Args:
        batches: other sentences, as :func:`.checkpoint.samples` returns them.
    """
    return mean_bits(model.model, samples(model, "valid") if batches is None else batches)
