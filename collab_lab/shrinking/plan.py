"""A plan: a shape for every site of a model, its price and its costs; and what it may cut.

:mod:`.planner` finds the cheapest plan of what is :class:`Allowed`, :mod:`.by_hand` writes one,
:mod:`.apply` makes the smaller model of either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from collab_common import ATTENTION_TYPES
from collab_lab.shrinking.cut import ANY_BITS, Cut
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.one_copy import OneCopy
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.cuts.units import Units
from collab_lab.shrinking.engine import ENGINES
from collab_lab.shrinking.shape import PARTS, Shape, Site, width_of
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward

#: What a budget can be of.
RESOURCES = ("cache", "parameters", "heads", "time")
#: Cuts of the cache by the names of ``--kinds``, next to rounding; unchanged: heads as they are.
CACHE_CUTS: dict[str, tuple[type[Cut], ...]] = {
    "latent": (Latent, OneCopy),
    "unchanged": (),
    "grouped-query": (GroupedQuery,),
    "collab": (SharedKey,),
}


class Times(Protocol):
    """Times of shapes in the engine that will run the model, as shares of the given model's time.

    Attributes:
        engine: name of the engine, one of :data:`.engine.ENGINES`.
        uncut: time of the converted model before any cut; it differs from 1 if fairseq's own
            attention is replaced by this project's.
    """

    @property
    def engine(self) -> str: ...

    @property
    def uncut(self) -> float: ...

    def check(self, model: Trained) -> None:
        """Raise UserError if these are times of another model."""

    def change(self, site: Site, shape: Shape) -> float:
        """The time that a shape adds to that of the uncut model; below 0 if it saves time."""


class Allowed(NamedTuple):
    """What a plan may cut.

    Attributes:
        parts: what may be cut: heads, units, cache.
        kinds: kinds of heads to try for a smaller cache, from :data:`CACHE_CUTS` and ``own``; None:
            the engine's default.
        bits: allowed bits per number in a smaller cache; 0: no rounding.
        engine: name of the engine that will run the model, one of :data:`.engine.ENGINES`.
        times: measured times, if the target is a share of the time.
        own: cuts of the user, which replace this project's cuts of the same part.
    """

    parts: tuple[str, ...] = PARTS
    kinds: tuple[str, ...] | None = None
    bits: tuple[int, ...] = ANY_BITS
    engine: str = "fairseq"
    times: Times | None = None
    own: tuple[Cut, ...] = ()

    def candidates(self) -> dict[str, list[Cut]]:
        """The cuts of a plan for each kind of heads; one entry if the cache may not be cut."""
        engine, own = ENGINES[self.engine], {cut.name: cut for cut in self.own}
        cuts: list[Cut] = [Heads(engine.even), Units(engine.multiple)]
        replaced = {cut.part for cut in self.own} - {"cache"}
        cuts = [cut for cut in cuts if cut.part in self.parts and cut.part not in replaced]
        cuts += [cut for cut in self.own if cut.part in self.parts and cut.part != "cache"]
        if "cache" not in self.parts:
            return {"unchanged": cuts}
        of_cache = tuple(cut.name for cut in self.own if cut.part == "cache")
        kinds = self.kinds or of_cache or engine.kinds
        return {
            kind: [
                *cuts,
                Bits(alone=kind == "unchanged"),
                *([own[kind]] if kind in own else [c() for c in CACHE_CUTS[kind]]),
            ]
            for kind in kinds
        }


#: Everything that this project can cut.
ANYTHING = Allowed()

# ---- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What a smaller model keeps of a trained one.

    Attributes:
        kind: kind of heads in the result: ``unchanged``, or another one of :data:`CACHE_CUTS`.
        shapes: the shape of every site.
        cuts: the cuts, each with the sites whose shapes it offered.
        prices: predicted loss in bits per target token, by part: heads, units, cache.
        costs: costs of the smaller model: cache (bits per token), parameters (of all layers),
            heads.
        whole: the same costs of the trained model, with a standard cache: the 100% of all shares.
        time: predicted share of the given model's seconds, if times were measured.
        of_sites: price of the cache of each attention: as offered and, when the plan was applied,
            for the heads that stay.
    """

    kind: str
    shapes: Mapping[Site, Shape]
    cuts: Sequence[tuple[Cut, Sequence[Site]]] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, int] = field(default_factory=dict)
    whole: Mapping[str, int] = field(default_factory=dict)
    time: float | None = None
    of_sites: Mapping[Site, float] = field(default_factory=dict)

    @property
    def price(self) -> float:
        """The predicted loss in bits per target token."""
        return sum(self.prices.values())

    @property
    def attentions(self) -> dict[Attention, Shape]:
        """The shapes of all attentions."""
        return {a: shape for a, shape in self.shapes.items() if isinstance(a, Attention)}

    @property
    def retained(self) -> dict[Any, list[list[int]]]:
        """The remaining heads, by attention type and layer."""
        result: dict[Any, list[list[int]]] = {type_: [] for type_ in ATTENTION_TYPES}
        for attention, shape in self.attentions.items():
            result[attention.type].append([*shape.heads])
        return result

    @property
    def units(self) -> dict[FeedForward, list[int]]:
        """The remaining units of each block that loses some."""
        return {
            block: [*shape.units]
            for block, shape in self.shapes.items()
            if isinstance(block, FeedForward) and len(shape.units) < block.width
        }

    @property
    def sizes(self) -> dict[Attention, int]:
        """The size of each attention that is converted to another kind of heads."""
        return {a: shape.size for a, shape in self.attentions.items() if shape.size}

    @property
    def bits(self) -> dict[Attention, int]:
        """Bits per number of each KV cache that is rounded."""
        return {a: shape.bits for a, shape in self.attentions.items() if shape.bits}

    @property
    def shared(self) -> bool:
        """Whether all cross-attentions share one latent, which is cached once."""
        return any(shape.copy and shape.kind is not None for shape in self.shapes.values())

    @property
    def size_name(self) -> str:
        """What messages call a size, for example ``latent width``."""
        kinds = (shape.kind for shape in self.shapes.values() if shape.kind is not None)
        return next((kind.size_name for kind in kinds), "")

    def __repr__(self) -> str:
        heads = sum(len(shape.heads) for shape in self.shapes.values())
        cut = [f"{heads} heads", *(f"{b}: {len(u)} units" for b, u in self.units.items())]
        cut += [f"{a}: {self.size_name} {size}" for a, size in self.sizes.items()]
        few = f"{', '.join(cut[:4])}{', ...' * (len(cut) > 4)}"
        price = f"price: {self.price:.4f} bits per target token" if self.prices else "no price"
        return f"plan, {price}\n{few}"

    def to_json(self) -> dict[str, Any]:
        """The plan as plain numbers and names, which the new checkpoint stores."""
        return {
            "kind": self.kind,
            "heads": self.retained,
            "units": {str(block): units for block, units in self.units.items()},
            "sizes": {str(a): size for a, size in self.sizes.items()},
            "bits": {str(a): bits for a, bits in self.bits.items()},
            "prices": dict(self.prices),
            "costs": dict(self.costs),
            "whole": dict(self.whole),
            "time": self.time,
            "shared": self.shared,
        }

    def table(self) -> list[list[Any]]:
        """One row for each site that is cut: what remains (``3 of 4 heads``), size and bits."""
        rows: list[list[Any]] = []
        for site, shape in self.shapes.items():
            width = width_of(site)
            what = "heads" if isinstance(site, Attention) else "units"
            if shape.width < width or shape.size or shape.bits:
                size: Any = shape.size or None
                size = f"{size}, shared" if size and shape.copy else size
                row = [str(site), f"{shape.width} of {width} {what}", size, shape.bits or None]
                rows.append(row)
        return rows
