"""What may stay of each site of a model, with its price and its costs.

A *site* is an attention or a feed-forward block; a :class:`Choice` is what stays of it: heads or
units, the width of a latent, the bits of a cached number.  Prices are in bits of loss per target
token (:mod:`.attention_price`, :mod:`.removal`).  Those of fewer heads and of another cache of one
attention are added here; :meth:`.Plan.apply` computes the price of both together.

Shapes: H heads of sizes h_qk and h_v, inputs of sizes d and d_y, a latent of r numbers, F units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from collab_lab.mathematics import head_prices
from collab_lab.mathematics.attention_price import Point
from collab_lab.mathematics.removal import removal_order
from collab_lab.metrics.cost import UNROUNDED
from collab_lab.shrinking.converter import Converter
from collab_lab.shrinking.head_parts import costs_of_heads
from collab_lab.shrinking.kinds import PlannedKind
from collab_lab.statistics.attentions import Statistics
from collab_lab.statistics.units import UnitStatistics
from collab_lab.trained.attentions import Attention
from collab_lab.trained.feed_forward import FeedForward
from fairseq_collab.attention.rounding import cached_bits
from fairseq_collab.attention.shared_latent import SharedLatentAttention

#: A place where something can be cut.
Site = Attention | FeedForward
#: Widths of a feed-forward block are multiples of it, and at most this many are tried.
MULTIPLE, WIDTHS = 16, 32


class Choice(NamedTuple):
    """What stays of a site.

    Attributes:
        number: of heads, or of units.
        size: of another kind of heads; 0 where they have keys and values as they are.
        bits: of a number in the KV cache; 0 if it is not rounded.
        price: in bits of loss per target token.
        cache: bits per token in the KV cache; numbers that are not rounded have 16.
        parameters: of the site.
        heads: number of heads, 0 for units.
        time: what it adds to the seconds of the uncut model, in millionths of those of the given
            model (below 0 where it saves some).
        shared: whether the cache is one copy for all cross-attentions, which the first one counts.
    """

    number: int
    size: int
    bits: int
    price: float
    cache: int
    parameters: int
    heads: int
    time: int = 0
    shared: bool = False


class Times(Protocol):
    """What choices take in the engine where the model will run, as shares of the given model's.

    Attributes:
        engine: of :data:`.plan.ENGINES`.
        uncut: time of the model in which nothing is cut; not 1 where fairseq's own attention
            becomes this project's.
    """

    @property
    def engine(self) -> str: ...

    @property
    def uncut(self) -> float: ...

    def change(self, site: Site, choice: Choice, kind: PlannedKind | None = None) -> float:
        """What a choice adds to the time of the uncut model; below 0 where it saves some.

        Args:
            kind: of heads with a size.
        """


#: Parts of the whole in which times are counted.
PARTS = 1_000_000


class Removals(NamedTuple):
    """The order in which heads or units of a site go, and the price when the first n are gone.

    Attributes:
        order: the heads or units, the first to go first.
        prices: ``n + 1`` numbers, from 0; infinite where a part of a group would go.
    """

    order: list[int]
    prices: list[float]

    def retained(self, number: int) -> list[int]:
        """The heads or units of which ``number`` stay."""
        return sorted(self.order[len(self.order) - number :])


def removals_of(site: Site, statistics: Statistics | UnitStatistics) -> Removals:
    """The order of a site's heads or units: always the cheapest of those left."""
    order, prices = list[int](), [0.0]
    if isinstance(statistics, UnitStatistics):
        weight = site.module.fc2.weight.detach().double()  # (d, F)
        covariance = statistics.ridged().covariance
        units = removal_order(weight, covariance, statistics.output_fisher)
        steps: Iterator[tuple[float, list[int]]] = ((rise, [unit]) for rise, unit in units)
    else:
        steps = head_prices.group_removal_order(site.module, statistics)
    total = 0.0
    for rise, gone in steps:
        total += rise
        order += gone
        prices += [*[math.inf] * (len(gone) - 1), total]
    return Removals(order, prices)


def uncut(site: Site) -> Choice:
    """The site as it is, without rounding."""
    if isinstance(site, FeedForward):
        return _units(site, site.width, 0.0)
    number = site.module.num_heads
    return Choice(number, 0, 0, 0.0, *costs_of(site, number, 0, 0, None), number)


def _units(block: FeedForward, number: int, price: float) -> Choice:
    d = block.module.fc2.out_features
    return Choice(number, 0, 0, price, 0, number * (2 * d + 1) + d, 0)


# ---- feed-forward blocks -------------------------------------------------------------------------


def unit_choices(
    block: FeedForward, removals: Removals, multiple: int, times: Times | None = None
) -> list[Choice]:
    """All of a block, and fewer units in steps of ``multiple`` (or of a thirty-second)."""
    width = block.width
    step = max(multiple, -(-width // WIDTHS // multiple) * multiple)
    numbers = [width, *range((width - 1) // step * step, 0, -step)]
    every = [_units(block, number, removals.prices[width - number]) for number in numbers]
    return [timed(block, choice, times) for choice in every]


# ---- attentions ----------------------------------------------------------------------------------


def attention_choices(
    attention: Attention,
    removals: Removals,
    counts: Sequence[int],
    caches: Sequence[Point],
    kind: PlannedKind | None = None,
    times: Times | None = None,
    has_copy: bool = True,
) -> list[Choice]:
    """Each number of heads with each cache; those that another one beats are left out.

    Args:
        counts: numbers of heads that may stay.
        caches: of all heads: sizes, bits and prices; size 0: heads as they are.
        kind: of heads with a size.
        has_copy: whether a copy that attentions share counts here.
    """
    module, every = attention.module, list[Choice]()
    for number in counts:
        gone = removals.prices[len(removals.order) - number]
        if not number:
            every.append(Choice(0, 0, 0, gone, 0, module.embed_dim, 0))
            continue
        for size, _, _, price, bits, shared in caches:
            if size and kind is not None and not kind.fits(module, number, size):
                continue
            cache, parameters = costs_of(attention, number, size, bits, kind)
            if size and shared:
                parameters -= projection(module, size, is_there=has_copy)
                cache = cache if has_copy else 0
            costs = cache, parameters, number
            every.append(Choice(number, size, bits, gone + price, *costs, shared=shared))
    return undominated([timed(attention, choice, times, kind) for choice in every])


def projection(module: Any, size: int, is_there: bool) -> int:
    """Parameters of a latent's projection that an attention of a shared one saves.

    Args:
        is_there: whether the copy counts here, whose projection is saved at full width alone.
    """
    return 0 if is_there and size < module.kdim else size * (int(module.kdim) + 1)


def timed(
    site: Site, choice: Choice, times: Times | None, kind: PlannedKind | None = None
) -> Choice:
    """The choice with its time, where times were measured."""
    if times is None:
        return choice
    return choice._replace(time=round(PARTS * times.change(site, choice, kind)))


def costs_of(
    attention: Attention, number: int, size: int, bits: int, kind: PlannedKind | None
) -> tuple[int, int]:
    """Bits per token in the cache of ``number`` heads, and parameters; size 0: heads as they are.

    Args:
        bits: of a number in the cache; 0 if it is not rounded.
    """
    module = attention.module
    if size and kind is not None:
        widths, parameters = kind.costs(module, number, size)
    else:
        widths, parameters = costs_of_heads(module, number)
    if attention.type == "encoder":
        return 0, parameters
    cached = (cached_bits(width, bits) if bits else UNROUNDED * width for width in widths)
    return sum(cached), parameters


def undominated(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that no other one beats in price and all costs.

    Of a shared copy, each size with each number of bits is left: it may be the best in all layers.
    """
    kept = list[Choice]()
    for choice in sorted(choices, key=lambda c: (c.price, c.cache, c.parameters, c.heads, c.time)):
        if not any(
            copy_of(other) == copy_of(choice)
            and other.cache <= choice.cache
            and other.parameters <= choice.parameters
            and other.heads <= choice.heads
            and other.time <= choice.time
            for other in kept
        ):
            kept.append(choice)
    return kept


def copy_of(choice: Choice) -> tuple[int, int] | None:
    """The size and the bits of a shared copy; None for a cache of an attention's own."""
    return (choice.size, choice.bits) if choice.shared else None


def caches_of(
    attention: Attention,
    rounding: Mapping[int, float],
    converter: Converter | None,
    bits: Sequence[int],
) -> list[Point]:
    """Caches of an attention with all its heads: sizes, bits, prices.

    Args:
        rounding: prices of rounding heads as they are, by bits.
        converter: to heads of the sizes that are tried; None: heads as they are.
        bits: that may be taken, if the attention has a cache.
    """
    if attention.type == "encoder":
        return [Point(0, 0, 0, 0.0)]
    shares = isinstance(attention.module, SharedLatentAttention)
    points = [Point(0, 0, 0, rounding[number], number, shares) for number in bits]
    if converter is not None:
        sized = [*converter.curve(attention), *converter.shared_curves.get(attention, [])]
        points += [p for p in sized if p.size and p.bits in bits]
    return points
