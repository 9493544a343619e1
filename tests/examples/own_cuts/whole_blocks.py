"""Feed-forward blocks that go as a whole: the refit leaves the mean of what a block wrote.

The price of a block is measured: what the calibration sentences lose when no other block goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from collab_lab.metrics.loss import mean_bits
from collab_lab.refitting.refit import refit
from collab_lab.shrinking.cut import Cut, Offer
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.shape import Shape, Site
from collab_lab.trained.feed_forward import FeedForward


class WholeBlocks(Cut):
    """All units of a block, or none."""

    name = "whole-blocks"
    part = "units"

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        if not isinstance(site, FeedForward):
            return ()
        price = evidence.once((self.name, site), lambda: rise_without(site, evidence))
        return [Offer(Shape(units=()), max(0.0, price))]

    def apply(self, draft: Draft, site: Site, shape: Shape) -> None:
        assert isinstance(site, FeedForward)
        draft.keep_units(site, shape.units)


def rise_without(block: FeedForward, evidence: Evidence) -> float:
    """The rise of the loss on the calibration sentences without a block, after the refit."""
    trained, batches = evidence.trained, evidence.batches
    draft = Draft(trained)
    draft.keep_units(block, ())
    smaller = draft.build()
    refit(smaller, trained, batches)
    return mean_bits(smaller.model, batches) - mean_bits(trained.model, batches)
