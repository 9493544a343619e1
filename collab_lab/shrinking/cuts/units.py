"""Removing units of feed-forward blocks, the cheapest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collab_lab.shrinking.cut import EVERY_ENGINE, Cut, Offer
from collab_lab.shrinking.cuts.heads import head_problems
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.shape import Shape, Site
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward

#: At most this many widths of a block are tried.
MOST_WIDTHS = 32


class Units(Cut):
    """Make feed-forward blocks narrower.

    Args:
        multiple: widths are multiples of this number.
    """

    name = part = "units"
    engines = EVERY_ENGINE

    def __init__(self, multiple: int = 16):
        self.multiple = multiple

    def refuses(self, trained: Trained) -> Iterator[str]:
        yield from head_problems(trained)

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        """Offer all units of a block, and fewer in steps of a multiple: at most 32 widths or so."""
        if not isinstance(site, FeedForward):
            return ()
        removals, width = evidence.removals(site), site.width
        step = max(self.multiple, -(-width // MOST_WIDTHS // self.multiple) * self.multiple)
        numbers = [width, *range((width - 1) // step * step, 0, -step)]
        return [
            Offer(Shape(units=tuple(removals.retained(n))), removals.prices[width - n])
            for n in numbers
        ]

    def apply(self, draft: Draft, site: Site, shape: Shape) -> float | None:
        assert isinstance(site, FeedForward)
        draft.keep_units(site, shape.units)
        return None
