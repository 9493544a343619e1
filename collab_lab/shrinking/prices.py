"""What each part of a trained model is worth: what ``fairseq-collab prices`` writes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from collab_common.errors import UserError
from collab_lab.mathematics.attention_price import Point
from collab_lab.mathematics.head_prices import head_noises, head_prices
from collab_lab.mathematics.removal import removal_order
from collab_lab.shrinking.converter import Converter
from collab_lab.shrinking.kinds import Collaborative, GroupedQuery, Latent, Narrower
from collab_lab.statistics.attentions import Statistics, collect_all
from collab_lab.statistics.units import UnitStatistics
from collab_lab.trained.arguments import sentences_of
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward

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
            and :mod:`.stored` writes and reads them.
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

    def narrower(self, block: FeedForward, shares: Sequence[float]) -> list[float]:
        """The prices of a feed-forward block that keeps shares of its units, the best of them."""
        units = self.units[block]
        weight, covariance = block.module.fc2.weight.detach().double(), units.ridged().covariance
        order = removal_order(weight, covariance, units.output_fisher)
        numbers = [block.width - round(share * block.width) for share in shares]
        rises = (rise for rise, _ in itertools.islice(order, max(numbers)))
        prices = [0.0, *itertools.accumulate(rises)]
        return [prices[number] for number in numbers]

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
    batches = sentences_of(model, subset, sentences)
    statistics, units, _ = collect_all(model, batches)
    converters, impossible = {}, {}
    for name, kind in PRICED.items():
        try:
            converters[name] = Converter(model, kind, statistics)
        except UserError as error:
            impossible[name] = error.problem
    number = sum(len(batch["target"]) for batch in batches)
    return Prices(statistics, converters, impossible, number, units)
