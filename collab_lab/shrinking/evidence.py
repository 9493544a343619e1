"""Statistics from one pass over calibration sentences, and prices that several plans share.

Prices of removed heads and units (:mod:`collab_lab.mathematics.removal`) consider that the others
compensate: of two heads that compute the same, either can be removed cheaply, but not both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from collab_common.errors import UserError
from collab_lab.mathematics import head_prices
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.removal import group_removals
from collab_lab.metrics.loss import mean_bits, say_what_is_measured
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
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward
from collab_lab.trained.identity import hash_of
from collab_lab.trained.sentences import sentences_of

T = TypeVar("T")


class Removals(NamedTuple):
    """The order in which to remove the heads or units of a site, and what each removal costs.

    Attributes:
        order: the n heads or units, in the order of removal.
        prices: ``n + 1`` numbers, in bits per target token: the price of removing the first 0,
            1, ... n; infinite if only a part of a group would be removed.
    """

    order: list[int]
    prices: list[float]

    def retained(self, number: int) -> list[int]:
        """The ``number`` heads or units that stay longest."""
        return sorted(self.order[len(self.order) - number :])


@dataclass
class Evidence:
    """What one calibration pass measured of a model.

    Attributes:
        batches: the calibration sentences.
        attentions: statistics of all attentions with heads; empty if all directions of the
            weights count equally.
        units: statistics of all feed-forward blocks, if units may be cut.
        bits: the model's loss on these sentences, in bits per target token; None if unknown.
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
        """Collect the evidence in one pass over sentences that are spread evenly over a subset.

        Args:
            statistics: of the model's attentions and blocks, in place of a pass for prices.
            parts: of sites that may be cut.
        """
        say_what_is_measured(model)
        batches = sentences_of(model, subset, sentences)
        if statistics is None:
            return cls(model, batches, *collect_all(model, batches, parts=parts))
        of_attentions, of_units = matched(statistics[0], model), statistics[1]
        return cls(model, batches, of_attentions, of_units, mean_bits(model.model, batches))

    def check_of(self, model: Trained) -> None:
        """Raise UserError unless this is evidence about ``model``, which may be opened again."""
        own = self.trained.model
        if own is not model.model and hash_of(own) != hash_of(model.model):
            problem = f"is of another model than {model.path}"
            raise UserError(problem, "`evidence`", "collect it of this one: Evidence.of")

    def check_caches(self) -> None:
        """Raise UserError if the statistics do not suffice to price other heads and caches."""
        check_of_caches(self.attentions, self.trained)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return ``compute()``, which is called only once for each key, for all plans."""
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
        """The order in which to remove a site's heads or units: always the cheapest remaining."""
        return self.once(("removals", site), lambda: self._removals(site))

    def _removals(self, site: Site) -> Removals:
        if isinstance(site, FeedForward):
            if site not in self.units:
                todo = "collect statistics with `units` among the cuts"
                raise UserError(f"there are no statistics of {site}", self.trained.path, todo)
            weight = site.module.fc2.weight.detach().double()  # (d, F)
            of_units = self.units[site]
            covariance = ridged(of_units.covariance)
            units = group_removals(weight, covariance, of_units.output_fisher)
            return in_order((rise, [unit]) for rise, unit in units)
        statistics = self.attentions[site]
        return in_order(head_prices.head_removals(site.module, statistics))


def in_order(steps: Iterator[tuple[float, list[int]]]) -> Removals:
    """Join steps, each with its additional price and the heads or units that it removes."""
    order, prices, total = list[int](), [0.0], 0.0
    for rise, gone in steps:
        total += rise
        order += gone
        prices += [*[math.inf] * (len(gone) - 1), total]
    return Removals(order, prices)
