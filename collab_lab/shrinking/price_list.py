"""The price of cutting each part of a trained model, which ``fairseq-collab prices`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from collab_lab.mathematics.head_prices import head_noises, head_prices
from collab_lab.shrinking.cut import Cut
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.cuttable import cuttable
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.shape import costs
from collab_lab.statistics.moments import Statistics
from collab_lab.statistics.units import UnitStatistics
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained, check_model
from collab_lab.trained.feed_forward import FeedForward
from collab_lab.trained.rebuilt import model_problems

#: Cuts of the cache that :func:`prices` prices, by the names of ``--kinds``.
PRICED: dict[str, Cut] = {
    "latent": Latent(),
    "collab": SharedKey(),
    "grouped-query": GroupedQuery(),
    "unchanged": Bits(alone=True),
}


class Point(NamedTuple):
    """The costs and the price of an attention in one shape.

    Attributes:
        cache: bits per token in its KV cache, with 16 bits for a number that is not rounded.
        parameters: number of its parameters.
        price: predicted loss in bits per target token.
        bits: bits per number in its KV cache; 0 if it is not rounded.
    """

    size: int
    cache: int
    parameters: int
    price: float
    bits: int


class Prices(NamedTuple):
    """The predicted loss from cutting each part of a model, in bits per target token.

    Attributes:
        evidence: statistics of each attention with heads and of each feed-forward block.
            ``convert`` and ``prune`` accept those of the attentions;
            :mod:`collab_lab.statistics.stored` writes and reads both.
        impossible: why the model cannot have some kinds of heads, by kind.
        sentences: number of sentences that were read.
    """

    evidence: Evidence
    impossible: dict[str, str]
    sentences: int

    @property
    def model(self) -> Trained:
        """The model that was priced: its gates are multiplied into the weights, groups dropped."""
        return self.evidence.trained

    @property
    def statistics(self) -> Mapping[Attention, Statistics]:
        """The statistics of each attention with heads."""
        return self.evidence.attentions

    @property
    def units(self) -> Mapping[FeedForward, UnitStatistics]:
        """The statistics of each feed-forward block."""
        return self.evidence.units

    @property
    def kinds(self) -> list[str]:
        """The kinds of :data:`PRICED` that the model can have."""
        return [kind for kind in PRICED if kind not in self.impossible]

    def __repr__(self) -> str:
        heads = [(price, str(a)) for a in self.statistics for price in self.heads(a)]
        kinds = ", ".join([*self.kinds, *(f"no {kind}" for kind in self.impossible)])
        read = f"from {self.sentences} sentences"
        return (
            f"prices of {len(self.statistics)} attentions, {read}: {kinds}\n"
            f"removed heads: {min(heads)[0]:.2g} bits ({min(heads)[1]}) to {max(heads)[0]:.2g} "
            f"({max(heads)[1]})"
        )

    def heads(self, attention: Attention) -> list[float]:
        """The price of removing each head while all others stay, in bits: ``H`` numbers."""
        return head_prices(attention.module, self.statistics[attention])

    def noises(self, attention: Attention) -> list[float]:
        """The standard error of each price of :meth:`heads`, from two halves of the sentences.

        It is NaN if there was a single sentence.
        """
        return head_noises(attention.module, self.statistics[attention])

    def narrower(self, block: FeedForward, shares: Sequence[float]) -> list[float]:
        """The prices of keeping these shares of a block's units, always the best units."""
        prices = self.evidence.removals(block).prices
        return [prices[block.width - round(share * block.width)] for share in shares]

    def sizes(self, attention: Attention, bits: int = 0) -> dict[str, list[Point]]:
        """Costs and prices by kind of heads, at up to 16 sizes that ascend to the exact one.

        Args:
            bits: bits per number in the KV cache: 8, 4, or 0 without rounding.
        """
        return {
            kind: [
                Point(shape.size, *costs(attention, shape)[:2], price, shape.bits)
                for shape, price in PRICED[kind].offers(attention, self.evidence)
                if shape.bits == bits
            ]
            for kind in self.kinds
            if bits or kind != "unchanged"
        }


def prices(model: Trained, *, subset: str = "train", sentences: int = 1000) -> Prices:
    """Predict how much loss it costs to narrow keys, round caches or remove heads, each by itself.

    It reads the sentences in one forward and backward pass.

    Args:
        subset: set to read.
        sentences: number of sentences, spread evenly over the set.

    Raises:
        UserError: the model has no heads, or every sentence is longer than its positions.
    """
    check_model(model)
    # Those of a class that cannot be built anew are of itself: nothing is made of it.
    model = model if any(model_problems(model)) else cuttable(model)
    evidence = Evidence.of(model, subset, sentences)
    reasons = {kind: "; ".join(cut.refuses(model)) for kind, cut in PRICED.items()}
    impossible = {kind: reason for kind, reason in reasons.items() if reason}
    number = sum(len(batch["target"]) for batch in evidence.batches)
    return Prices(evidence, impossible, number)
