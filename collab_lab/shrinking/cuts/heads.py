"""Removing heads: always the cheapest one that remains, given that the others compensate."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from fairseq.modules import MultiheadAttention

from collab_common import ATTENTION_TYPES, AttentionType
from collab_lab.shrinking.cut import EVERY_ENGINE, Cut, Offer, Tie
from collab_lab.shrinking.draft import Draft, size_problems
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.shape import Shape, Site, as_it_is
from collab_lab.trained.attentions import Attention, attentions, is_one_of, removed_together
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.rebuilt import model_problems
from fairseq_collab.attention import CollaborativeAttention, SeparateAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention

#: Attentions whose heads can be removed.
KNOWN = (
    *(MultiheadAttention, SeparateAttention),
    *(CollaborativeAttention, GroupedQueryAttention, LatentAttention),
)


class Heads(Cut):
    """Remove heads; heads that share a key or a value are removed together.

    Args:
        even: whether all attentions of the encoder keep equally many heads, and all of the decoder
            equally many, as CTranslate2 requires.
        types: attention types that lose heads.
        keep: number of heads that each of these attentions keeps; None: any number.
        counted: whether the plan must remove an exact number of heads: then every number is
            offered, also one that costs as much as a smaller model.
    """

    name = part = "heads"
    engines = EVERY_ENGINE

    def __init__(
        self,
        even: bool = False,
        types: Collection[AttentionType] = ATTENTION_TYPES,
        keep: int | None = None,
        counted: bool = False,
    ):
        self.even, self.types, self.keep, self.counted = even, types, keep, counted

    def refuses(self, trained: Trained) -> Iterator[str]:
        yield from head_problems(trained)

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        """Offer all heads and fewer; cross-attention keeps at least one, to see the source."""
        if not isinstance(site, Attention) or site.type not in self.types:
            return ()
        removals, heads = evidence.removals(site), site.module.num_heads
        step, shape = removed_together(site.module), as_it_is(site)
        least = step if site.type == "cross" or self.even else 0
        numbers = range(heads, least - 1, -step) if self.keep is None else [self.keep]
        prices = {number: removals.prices[heads - number] for number in numbers}
        return [
            Offer(replace(shape, heads=tuple(removals.retained(number))), price)
            for number, price in prices.items()
            if math.isfinite(price)
        ]

    def ties(self, sites: Sequence[Site]) -> Iterable[Tie]:
        every = [site for site in sites if isinstance(site, Attention)]
        if self.counted:  # ties no site, but makes the search keep every number of heads
            yield Tie((), heads_of)
        for is_encoder in (True, False) if self.even else ():
            yield Tie([site for site in every if (site.type == "encoder") == is_encoder], heads_of)

    def apply(self, draft: Draft, site: Site, shape: Shape) -> float | None:
        assert isinstance(site, Attention)
        draft.keep_heads(site, shape.heads)
        return None


def heads_of(shape: Shape) -> int:
    """The number of remaining heads."""
    return len(shape.heads)


def head_problems(trained: Trained) -> Iterator[str]:
    """Reasons why heads cannot be removed from a model."""
    modules = [attention.module for attention in attentions(trained.model)]
    for kind in sorted({type(m).__name__ for m in modules if not is_one_of(m, KNOWN)}):
        yield f"heads of the kind {kind} are not known"
    if any(getattr(m, "latent_norm", None) is not None for m in modules):
        yield "its latents are normalised: no price is known"
    yield from model_problems(trained)
    yield from size_problems(trained)
