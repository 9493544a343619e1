"""Predict combinations of places from single places, and choose those worth measuring.

    loss(s_1, ..., s_n) - loss(whole)  ~  sum_i ( loss(s_i) - loss(whole) )

for sizes ``s_i`` of places that shrink together.  Costs add up exactly: places share no weight and
no cache.  So some dozens of measurements rank thousands of combinations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairseq_collab.advice.candidates import Candidate, candidate
from fairseq_collab.advice.wishes import Wish, met, ratios

#: Candidates that are measured as a whole: in all, and of one method.
POOL, OF_ONE_METHOD = 12, 6


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
