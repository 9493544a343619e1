"""A rounded KV cache: heads stay as they are, and their keys and values have fewer bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from collab_lab.shrinking.cut import ANY_BITS, EVERY_ENGINE, Cut, Offer, Tie
from collab_lab.shrinking.draft import Draft, size_problems
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.shape import Shape, Site, as_it_is
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.rebuilt import model_problems
from fairseq_collab.attention.shared_latent import SharedLatentAttention


class Bits(Cut):
    """Round the numbers of a KV cache to 8 or 4 bits, or leave them.

    Args:
        alone: whether heads stay as they are, so that options must describe their sizes.
    """

    name = "bits"
    part = "cache"
    engines = EVERY_ENGINE  # which takes the number that is not rounded

    def __init__(self, alone: bool = False):
        self.alone = alone

    def refuses(self, trained: Trained) -> Iterator[str]:
        yield from model_problems(trained)
        if self.alone:
            yield from size_problems(trained)

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        if not isinstance(site, Attention) or site.type == "encoder" or not site.module.num_heads:
            return ()
        return evidence.once((self.identity, site), lambda: self._offers(site, evidence))

    def _offers(self, site: Attention, evidence: Evidence) -> list[Offer]:
        prices = evidence.whole_attention(site).rounding_prices(None, ANY_BITS)
        shapes = [replace(as_it_is(site), bits=bits) for bits in ANY_BITS]
        return [*map(Offer, shapes, prices)]

    def ties(self, sites: Sequence[Site]) -> Iterable[Tie]:
        """Attentions that already share one cache must have the same number of bits."""
        sharing = [s for s in sites if isinstance(s.module, SharedLatentAttention)]
        return [Tie(sharing, lambda shape: shape.shared)] if sharing else []

    def apply(self, draft: Draft, site: Site, shape: Shape) -> float:
        assert isinstance(site, Attention)
        draft.round(site, shape.bits)
        if not shape.heads:
            return 0.0
        return draft.attention_left(site).rounding_price(None, shape.bits)
