"""Wishes, candidates, and the choice of those worth measuring: what advice needs no model for.

A wish is a share of the given model's cost that must not be exceeded:

    cache           bytes cached for a source and a target token, all decoder layers together
    parameters      each shared one once
    multiply_adds   of a sentence pair of 30 tokens a side (:mod:`fairseq_collab.metrics.cost`)

A candidate is a method and a size for each *place* that shrinks: the attentions of one type.
Single places predict combinations of places that shrink together to sizes ``s_i``:

    loss(s_1, ..., s_n) - loss(whole)  ~  sum_i ( loss(s_i) - loss(whole) )

Costs add up exactly: places share no weight and no cache.  So some dozens of measurements rank
thousands of combinations.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.command import ranged

NAMES = {
    "cache": "KV cache per token",
    "parameters": "parameters",
    "multiply_adds": "multiply-adds",
}
HEADS = "heads"
MEANS = {
    HEADS: "heads are removed; the number stays in all layers of an attention type together",
    "collab": "all heads of an attention share keys of this width",
    "collab-values": "all heads of an attention share keys of this width, and one head of values",
    "grouped-query": "this many heads of keys and values serve all heads of queries",
    "latent": "keys and values are made from this many numbers per token, which alone are cached",
}
PLACES_MEAN = "encoder, decoder: self-attention; cross: cross-attention"
#: Candidates that are measured as a whole: in all, and of one method.
POOL, OF_ONE_METHOD = 12, 6


# ---- wishes --------------------------------------------------------------------------------------


class Wish(NamedTuple):
    """At most ``share`` of the given model's cost ``what``."""

    what: str
    share: float

    def __str__(self) -> str:
        return f"{self.what}={self.share:g}"


def parse(text: str) -> Wish:
    """A wish as the command line spells it (``cache=0.5``), for argparse."""
    what, _, number = text.partition("=")
    what = what.replace("-", "_")
    if what not in NAMES:
        said = f"{text!r} names none of {', '.join(NAMES)}, as in cache=0.5"
        raise argparse.ArgumentTypeError(said)
    return Wish(what, ranged(float, lambda x: 0 < x < 1, "above 0 and below 1")(number))


def met(wishes: Sequence[Wish], ratios: Mapping[str, float]) -> bool:
    """Whether a model with these shares of the costs meets all wishes."""
    return all(ratios[wish.what] <= wish.share for wish in wishes)


def ratios(found: Mapping[str, int], whole: Mapping[str, int]) -> dict[str, float]:
    """Costs as shares of the given model's."""
    return {what: found[what] / whole[what] if whole[what] else 1.0 for what in NAMES}


# ---- candidates ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A smaller model that can be made.

    Attributes:
        method: a key of :data:`MEANS`.
        sizes: ``(place, size)`` of the places that shrink, in the order of :data:`ATTENTION_TYPES`.
    """

    method: str
    sizes: tuple[tuple[AttentionType, int], ...]

    @property
    def name(self) -> str:
        """``collab encoder=32 cross=64``."""
        return " ".join([self.method, *(f"{place}={size}" for place, size in self.sizes)])


def candidate(method: str, sizes: Mapping[str, int]) -> Candidate:
    """The candidate with these sizes; other places keep their size."""
    return Candidate(
        method, tuple((place, sizes[place]) for place in ATTENTION_TYPES if place in sizes)
    )


@dataclass(frozen=True)
class Measured:
    """The given model, a method's start, or that with one place shrunk.

    Attributes:
        sizes: of the places that differ from the start.
        loss: added to the given model's, in nats per token.
    """

    sizes: Mapping[str, int]
    loss: float
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Predicted:
    """A combination, its predicted loss, and its costs as shares of the given model's."""

    candidate: Candidate
    loss: float
    ratios: dict[str, float]


def combinations(
    method: str, base: Measured, singles: Sequence[Measured], whole: Mapping[str, int]
) -> Iterator[Predicted]:
    """All combinations of the measured sizes of a method, except the given model.

    Args:
        base: the model whose places shrink; ``singles`` differ from it in one place each.
        whole: costs of the given model.
    """
    by_place: dict[str, list[Measured | None]] = {}
    for single in singles:
        (place,) = single.sizes
        by_place.setdefault(place, [None]).append(single)
    for choice in itertools.product(*by_place.values()):
        taken = [single for single in choice if single is not None]
        sizes = dict(base.sizes)
        for one in taken:
            sizes |= one.sizes
        if sizes:
            counts = {
                what: before + sum(one.counts[what] - before for one in taken)
                for what, before in base.counts.items()
            }
            loss = base.loss + sum(one.loss - base.loss for one in taken)
            yield Predicted(candidate(method, sizes), loss, ratios(counts, whole))


def best(found: Sequence[Predicted], wishes: Sequence[Wish]) -> list[Candidate]:
    """The :data:`POOL` candidates that meet the wishes with the smallest predicted loss.

    The cheaper comes first among equals.
    """
    ranked = sorted(
        (one for one in found if met(wishes, one.ratios)),
        key=lambda one: (one.loss, sum(one.ratios.values()), one.candidate.name),
    )
    kept: list[Candidate] = []
    for one in ranked:
        of_method = sum(other.method == one.candidate.method for other in kept)
        if of_method < OF_ONE_METHOD and len(kept) < POOL:
            kept.append(one.candidate)
    return kept


def nearest(found: Sequence[Predicted], wishes: Sequence[Wish]) -> Predicted:
    """The combination that exceeds the wishes by least."""

    def excess(one: Predicted) -> float:
        return sum(max(0.0, one.ratios[wish.what] - wish.share) for wish in wishes)

    return min(found, key=lambda one: (excess(one), one.loss, one.candidate.name))
