"""Keys and values in 2 bits, which no kernel has: simulated, to see what they would lose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from collab_lab.shrinking.cut import Cut, Offer
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.shape import Shape, Site, as_it_is
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.rounding import rounded

in_two_bits = partial(rounded, bits=2)


class TwoBits(Cut):
    """Every number of a KV cache in 2 bits."""

    name = "two-bits"
    part = "cache"
    simulated = True

    def refuses(self, trained: Trained) -> Iterable[str]:
        if any(getattr(a.module, "has_latent", False) for a in trained.attentions["decoder"]):
            yield "it caches latents, not keys and values"

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        if not isinstance(site, Attention) or not site.module.num_heads:
            return ()
        price = evidence.whole_attention(site).error_price(in_two_bits)
        return [Offer(replace(as_it_is(site), bits=2), price)]

    def apply(self, draft: Draft, site: Site, shape: Shape) -> float:
        assert isinstance(site, Attention)
        for projection in ("k_proj", "v_proj"):
            draft.simulate(site, projection, in_two_bits)
        return draft.attention_left(site).error_price(in_two_bits)
