"""Which candidates are worth measuring: what single places lose, added up, says first.

    loss(s_1, ..., s_n) - loss(whole)  ~  sum_i ( loss(s_i) - loss(whole) )

for sizes ``s_i`` of places that shrink together.  Costs add up exactly: places share no weight and
no cache.  So a few dozen measurements rank thousands of combinations; the best are then measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairseq_collab.advice.candidates import Candidate, candidate
from fairseq_collab.advice.wishes import Wish, counted, ratios

#: Candidates that are measured as a whole, in all and of one way at most.
POOL, OF_ONE_WAY = 12, 6
#: Without a wish: the budgets whose best candidates make the front.
FRONT = tuple(
    Wish(what, share)
    for what, shares in (("cache", (0.75, 0.5, 0.25)), ("parameters", (0.85, 0.7, 0.55)))
    for share in shares
)
#: With a wish for speed: the best candidates at these shares of the multiply-adds are timed.
WORK = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4)


@dataclass(frozen=True)
class Measured:
    """A model and what it costs: the given one, a way's start, or that with one place shrunk.

    Attributes:
        sizes: of the places that differ from the model that it is compared with.
        loss: here and below what is added to the given model's, in nats a token.
    """

    sizes: Mapping[str, int]
    loss: float
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Predicted:
    """A combination, with the loss that is expected of it and its costs as shares."""

    candidate: Candidate
    loss: float
    ratios: dict[str, float]

    def meets(self, wishes: Sequence[Wish]) -> bool:
        """Whether its costs do; speed is not known yet."""
        return all(wish.met(self.ratios) for wish in counted(wishes))


def combinations(
    way: str, base: Measured, singles: Sequence[Measured], whole: Mapping[str, int]
) -> Iterator[Predicted]:
    """All that a way can make of the sizes that were measured, but for the given model.

    Args:
        base: what places shrink from; ``singles`` differ from it in one place each.
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
            yield Predicted(candidate(way, sizes), loss, ratios(counts, whole))


def chosen(
    found: Sequence[Predicted], wishes: Sequence[Wish], speed: bool
) -> list[list[Candidate]]:
    """Groups of candidates to measure; the best of each group goes on.

    Empty groups, of wishes that nothing meets, are left out.
    """
    if speed:
        work = [(*counted(wishes), Wish("multiply_adds", share)) for share in WORK]
        firsts = dict.fromkeys(one for group in work for one in best(found, group, 1))
        return [list(firsts)] if firsts else []
    if wishes:
        groups = [best(found, wishes, POOL)]
    else:
        groups = [best(found, [wish], POOL // len(FRONT)) for wish in FRONT]
    return [group for group in groups if group]


def best(found: Sequence[Predicted], wishes: Sequence[Wish], number: int) -> list[Candidate]:
    """The candidates that meet the wishes with the smallest expected loss.

    Of equals the cheaper; :data:`OF_ONE_WAY` of a way at most.  What several ways come to, such as
    narrower feed-forward layers alone, counts once.
    """
    ranked = sorted(
        {one.candidate: one for one in found if one.meets(wishes)}.values(),
        key=lambda one: (one.loss, sum(one.ratios.values()), one.candidate.name),
    )
    kept: list[Candidate] = []
    for one in ranked:
        of_way = sum(other.way == one.candidate.way for other in kept)
        if of_way < OF_ONE_WAY and len(kept) < number:
            kept.append(one.candidate)
    return kept


def nearest(found: Sequence[Predicted], wishes: Sequence[Wish]) -> Predicted:
    """The combination that misses the wishes by least."""

    def missed(one: Predicted) -> float:
        return sum(max(0.0, one.ratios[wish.what] - wish.ratio) for wish in counted(wishes))

    return min(found, key=lambda one: (missed(one), one.loss, one.candidate.name))
