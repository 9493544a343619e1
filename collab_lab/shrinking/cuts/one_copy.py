"""One latent of the encoder's output that all cross-attentions share, and that is cached once.

At full width the latent is the encoder's output itself, without a projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from collab_lab.mathematics.new_heads import PricedWeights, heads_of_one_latent
from collab_lab.shrinking.cut import Offer, Tie
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.shape import ONE_LATENT, Shape, Site
from collab_lab.trained.attentions import Attention, attentions


class OneCopy(Latent):
    """Give all cross-attentions one latent."""

    name = "one copy"
    kind = ONE_LATENT

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        """Offer widths of the shared latent to a cross-attention, if there are several.

        The price is the loss from changing this attention.
        """
        if not isinstance(site, Attention) or site.type != "cross" or not site.module.num_heads:
            return ()
        every = evidence.once(self.identity, lambda: dict(self._of_all(evidence)))
        return every.get(site, ())

    def _of_all(self, evidence: Evidence) -> Iterator[tuple[Attention, list[Offer]]]:
        crossing = with_cross_attention(attentions(evidence.trained.model))
        if len(crossing) < 2:
            return
        priced = [evidence.whole_attention(a) for a in crossing]
        sizes = self.grid(crossing[0].module)
        new = {size: heads_of_one_latent(priced, size, 0) for size in sizes}
        for place, (site, attention) in enumerate(zip(crossing, priced, strict=True)):
            own = {size: heads[place] for size, heads in new.items()}
            offers = by_size(self.offers_with_bits(site, attention, own))
            yield site, [with_copy(offer, is_first=place == 0) for offer in offers]

    def arranged(self, shapes: Mapping[Attention, Shape]) -> Mapping[Attention, Shape]:
        first = next(iter(shapes))
        return {a: replace(of, copy="kept" if a == first else "read") for a, of in shapes.items()}

    def ties(self, sites: Sequence[Site]) -> Iterable[Tie]:
        """All layers share the latent, with one width and number of bits, or none does."""
        crossing = [s for s in sites if isinstance(s, Attention) and s.type == "cross"]
        return [Tie(crossing, lambda shape: shape.shared)]

    def apply_all(self, draft: Draft, shapes: Mapping[Site, Shape]) -> dict[Site, float]:
        sites = [site for site in shapes if isinstance(site, Attention)]
        priced = [draft.attention_left(site) for site in sites]
        [size] = {shape.size for shape in shapes.values()}
        prices = dict[Site, float]()
        new = heads_of_one_latent(priced, size)
        for site, attention, (weights, price) in zip(sites, priced, new, strict=True):
            own: PricedWeights = weights, price
            prices[site] = self.put(draft, site, shapes[site], attention, own)
            if size == attention.module.kdim:  # the latent is the source: its map is the identity
                for name in ("weight", "bias"):
                    del draft.weights[f"{site.name}.latent_proj.{name}"]
        draft.copy = size
        return prices


def with_cross_attention(every: Iterable[Attention]) -> list[Attention]:
    """The cross-attentions that have heads; all read the encoder's output."""
    return [a for a in every if a.type == "cross" and a.module.num_heads]


def with_copy(offer: Offer, is_first: bool) -> Offer:
    """The same offer for a shared cache, which the first cross-attention keeps and others read."""
    return offer._replace(shape=replace(offer.shape, copy="kept" if is_first else "read"))


def by_size(offers: Iterable[Offer]) -> list[Offer]:
    """Offers grouped by size, smallest first."""
    return sorted(offers, key=lambda offer: offer.shape.size)
