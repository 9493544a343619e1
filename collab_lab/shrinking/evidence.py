"""What one pass over calibration sentences shows of a model, and prices that several plans share.

Prices of removed heads and units (:mod:`collab_lab.mathematics.removal`) count what the others make
up for: of two heads that write the same, either can go cheaply, but not both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from collab_common.errors import UserError
from collab_lab.mathematics import head_prices
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.removal import block_removals
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.shape import PARTS, Site
from collab_lab.statistics.gram import ridged
from collab_lab.statistics.moments import (
    OfModel,
    Statistics,
    check_of_caches,
    collect_all,
    matched,
)
from collab_lab.statistics.units import UnitStatistics
from collab_lab.trained.arguments import sentences_of
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward

T = TypeVar("T")


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


@dataclass
class Evidence:
    """What a pass shows of a model.

    Attributes:
        batches: the calibration sentences.
        attentions: statistics of all attentions with heads; none where all directions of the
            weights count equally.
        units: statistics of all feed-forward blocks, if units may be cut.
        bits: the model's loss on the sentences, per target token; None where it is not known.
    """

    trained: Trained
    batches: list[dict[str, Any]] = field(default_factory=list)
    attentions: Mapping[Attention, Statistics] = field(default_factory=dict)
    units: Mapping[FeedForward, UnitStatistics] = field(default_factory=dict)
    bits: float | None = None
    _known: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.attentions:
            own = matched(self.attentions, self.trained)
            self.attentions = OfModel(own, self.trained.model)

    @classmethod
    def of(
        cls,
        model: Trained,
        subset: str = "train",
        sentences: int = 1000,
        statistics: tuple[Any, Any] | None = None,
        parts: Collection[str] = PARTS,
    ) -> Evidence:
        """Read the sentences, spread evenly over the subset.

        Args:
            statistics: of the model's attentions and blocks, in place of a pass for prices.
            parts: of sites that may be cut.
        """
        batches = sentences_of(model, subset, sentences)
        if statistics is None:
            return cls(model, batches, *collect_all(model, batches, parts=parts))
        of_attentions, of_units = matched(statistics[0], model), statistics[1]
        return cls(model, batches, of_attentions, of_units, mean_bits(model.model, batches))

    def check_caches(self) -> None:
        """Raise UserError for statistics without what prices of other heads and caches need."""
        check_of_caches(self.attentions, self.trained)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What a cut computes of this evidence, computed once for all plans."""
        if key not in self._known:
            self._known[key] = compute()
        found: T = self._known[key]
        return found

    def whole_attention(self, attention: Attention) -> PricedAttention:
        """An attention before any cut, with its statistics, which price changes of it."""

        def compute() -> PricedAttention:
            self.check_caches()
            return PricedAttention(attention.module, self.attentions.get(attention))

        return self.once(("trained attention", attention), compute)

    def removals(self, site: Site) -> Removals:
        """The order of a site's heads or units: always the cheapest of those left."""
        return self.once(("removals", site), lambda: self._removals(site))

    def _removals(self, site: Site) -> Removals:
        if isinstance(site, FeedForward):
            if site not in self.units:
                todo = "collect them with units among what may be cut"
                raise UserError(f"there are no statistics of {site}", self.trained.path, todo)
            weight = site.module.fc2.weight.detach().double()  # (d, F)
            of_units = self.units[site]
            covariance = ridged(of_units.covariance)
            units = block_removals(weight, covariance, of_units.output_fisher)
            return in_order((rise, [unit]) for rise, unit in units)
        statistics = self.attentions[site]
        return in_order(head_prices.head_removals(site.module, statistics))


def in_order(steps: Iterator[tuple[float, list[int]]]) -> Removals:
    """Removals of heads or units one after the other: what each adds, and which go."""
    order, prices, total = list[int](), [0.0], 0.0
    for rise, gone in steps:
        total += rise
        order += gone
        prices += [*[math.inf] * (len(gone) - 1), total]
    return Removals(order, prices)
