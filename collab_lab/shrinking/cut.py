"""A cut: something that can be taken from a model, as one class; see docs/own_cuts.md.

A cut says why a model cannot have it, which shapes a site can have and at what price, and how a
draft gets a shape.  A plan combines shapes of cuts of different *parts* of a site, whose prices add
up: heads with a cache of all heads; of one part it takes one shape.  Prices are in bits of loss per
target token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from fairseq.models import ARCH_MODEL_REGISTRY

from collab_common.progress import bar
from collab_lab.mathematics.new_heads import PricedWeights
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import STEPS
from collab_lab.shrinking.draft import Draft, head_sizes, is_standard
from collab_lab.shrinking.engine import ENGINES
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.shape import Kind, Shape, Site
from collab_lab.trained import rebuilt
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.rebuilt import arch_of, model_problems
from fairseq_collab.attention import SeparateAttention
from fairseq_collab.attention.rounding import BITS
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.variants import SEPARATE, family_of

#: Sizes of each attention that a budget is spread over.
GRID = 16
#: Of cuts whose models run everywhere.
EVERY_ENGINE = tuple(ENGINES)
#: Bits of a cached number; 0: no rounding.
ANY_BITS = (0, *BITS)


class Offer(NamedTuple):
    """A shape that a site can have, and what it loses, in bits per target token."""

    shape: Shape
    price: float


class Tie(NamedTuple):
    """Sites whose shapes agree: all have one value of ``of``, or none has this value.

    Attributes:
        of: a value of a shape; None where it is free.
    """

    sites: Sequence[Site]
    of: Callable[[Shape], Hashable | None]


class Cut(ABC):
    """Something that can be taken from a model.

    Attributes:
        name: as ``--kinds`` has it, for cuts of the cache.
        part: heads, units, or cache.
        engines: that keep what it saves.
        simulated: whether it changes a model only in this process: see :meth:`.Draft.simulate`.
    """

    name: ClassVar[str]
    part: ClassVar[str]
    engines: ClassVar[tuple[str, ...]] = ("fairseq",)
    simulated: ClassVar[bool] = False

    def refuses(self, trained: Trained) -> Iterable[str]:
        """All reasons why a model cannot be cut so."""
        return ()

    @abstractmethod
    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        """The shapes that a site can have, with prices; those of other sites: none."""

    def fits(self, site: Site, shape: Shape) -> bool:
        """Whether a site can have this shape with the heads that stay, and is smaller for it."""
        return True

    def ties(self, sites: Sequence[Site]) -> Iterable[Tie]:
        """Sites whose shapes must agree."""
        return ()

    @abstractmethod
    def apply(self, draft: Draft, site: Site, shape: Shape) -> float | None:
        """Give a draft's site this shape.

        Returns:
            The price of it with the heads that the draft has there; None where the offer holds.
        """

    def apply_all(self, draft: Draft, shapes: Mapping[Site, Shape]) -> dict[Site, float]:
        """Give all sites that it cuts their shapes: :meth:`apply`, one after the other."""
        prices = dict[Site, float]()
        for site, shape in bar(self.name, list(shapes.items())):
            price = self.apply(draft, site, shape)
            if price is not None:
                prices[site] = price
        return prices


class NewHeads(Cut):
    """A cut that gives attentions heads of another kind, for a smaller KV cache.

    A subclass has a :attr:`kind`, and defines :meth:`convert`.
    """

    part = "cache"
    engines: ClassVar[tuple[str, ...]] = ("fairseq", "onnx")
    kind: Kind
    #: Parts of standard heads that must have the size d/H: keys, values.
    standard_sized: tuple[str, ...] = ()
    #: Whether attentions may have any number of heads, none as well, and heads of any size.
    any_heads: ClassVar[bool] = True

    @abstractmethod
    def convert(self, trained: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        """The weights of the new attention in place of ``trained.module``, and their price.

        Args:
            steps: of L-BFGS; without them the price is a few per cent higher, in less time.
        """

    # ---- sizes -----------------------------------------------------------------------------------

    def exact_size(self, module: Any) -> int:
        """The size that is exact for an attention."""
        return self.kind.exact(module, int(module.num_heads))

    def out_of_range(self, module: Any, size: int) -> str | None:
        """The sizes that an attention can have, if ``size`` is none of them."""
        exact = self.exact_size(module)
        return None if 1 <= size <= exact else f"give one from 1 to {exact}, which is exact"

    def grid(self, module: Any) -> list[int]:
        """Sizes to spread a budget over, ascending to the one that is exact: at most 16."""
        exact = self.exact_size(module)
        sizes = {max(1, exact * step // GRID) for step in range(1, GRID + 1)}
        return sorted(size for size in sizes if self.out_of_range(module, size) is None)

    def scale(self, trained: PricedAttention) -> float:
        """The scale of the scores of the new attention, which queries make up for."""
        return trained.scale

    # ---- a cut -----------------------------------------------------------------------------------

    def refuses(self, trained: Trained) -> Iterator[str]:
        model, kind = trained.model, self.kind
        is_other = isinstance(model, HeadModel) and model.variant is not SEPARATE
        if is_other or family_of(type(model)) is None:
            yield (
                f"a {type(model).__name__} is neither a transformer, nor a transformer_lm, nor a "
                "transformer_headsize_n"
            )
            return
        if (arch := arch_of(trained, kind.variant)) not in ARCH_MODEL_REGISTRY:
            yield f"there is no architecture {arch}: register the heads for this family of models"
        yield from model_problems(trained)
        every = attentions(model)
        if kind.has_sizes:
            sizes = head_sizes(every)
            if not is_standard({a: a.module.num_heads for a in every}) and len(sizes) > 1:
                listed = ", ".join(f"{key} and {value}" for key, value in sorted(sizes))
                yield f"heads have sizes {listed} (keys, values), and {kind.heads_name} one"
        yield from self._unequal(every)

    def _unequal(self, every: Iterable[Attention]) -> Iterator[str]:
        """Heads that were pruned or resized, if the kind has no options for them."""
        first_of_side: dict[bool, Attention] = {}  # of the encoder, and of the decoder
        for attention in every:
            module = attention.module
            if isinstance(module, SeparateAttention):  # only these may be resized
                actual = {"keys": module.qk_head_size, "values": module.v_head_size}
                for part in self.standard_sized:
                    if actual[part] * module.num_heads != module.embed_dim:
                        yield (
                            f"{attention}: {module.num_heads} heads have {part} of size "
                            f"{actual[part]}, not {module.embed_dim}/H: they were pruned or resized"
                        )
            if self.any_heads:
                continue
            first = first_of_side.setdefault(attention.type == "encoder", attention)
            if not module.num_heads:
                yield f"{attention} has no heads to convert"
            elif module.num_heads != first.module.num_heads:
                expected = f"{first} has {first.module.num_heads}"
                yield f"{attention} has {module.num_heads} heads and {expected}"

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        """All sizes of the grid with all bits, before L-BFGS."""
        if not isinstance(site, Attention) or not site.module.num_heads:
            return ()
        return evidence.once((type(self), self.kind, site), lambda: self._offers(site, evidence))

    def _offers(self, site: Attention, evidence: Evidence) -> list[Offer]:
        trained = evidence.whole_attention(site)
        new = {size: self.convert(trained, size, 0) for size in self.grid(site.module)}
        return [*self.rounded(site, trained, new)]

    def rounded(
        self, site: Attention, trained: PricedAttention, new: Mapping[int, PricedWeights]
    ) -> Iterator[Offer]:
        """Offers of new heads of some sizes, without rounding and with every number of bits."""
        every = tuple(range(site.module.num_heads))
        bits = (0,) if site.type == "encoder" else ANY_BITS
        rounding = {
            size: trained.rounding_prices(weights, bits, self.scale(trained))
            for size, (weights, _) in new.items()
        }
        for column, number in enumerate(bits):
            for size, (_, price) in new.items():
                shape = Shape(every, kind=self.kind, size=size, bits=number)
                yield Offer(shape, price + rounding[size][column])

    def arranged(self, shapes: Mapping[Attention, Shape]) -> Mapping[Attention, Shape]:
        """Shapes of this cut as they are together."""
        return shapes

    def apply(self, draft: Draft, site: Site, shape: Shape) -> float | None:
        assert isinstance(site, Attention)
        trained = draft.attention_left(site)
        return self.put(draft, site, shape, trained, self.convert(trained, shape.size))

    def put(
        self,
        draft: Draft,
        site: Attention,
        shape: Shape,
        trained: PricedAttention,
        new: PricedWeights,
    ) -> float:
        """Put new heads into a draft; returns their price, that of rounding included."""
        weights, price = new
        rounding = trained.rounding_price(weights, shape.bits, self.scale(trained))
        draft.give(site, self.kind, shape.size, weights)
        if site.type != "encoder":
            draft.round(site, shape.bits)
        return price + rounding


def reject(trained: Trained, cuts: Iterable[Cut], doing: str) -> None:
    """Raise UserError with all reasons why a model cannot have some cuts, if there are any.

    Args:
        doing: what cannot be done with the model.
    """
    reasons = dict.fromkeys(reason for cut in cuts for reason in cut.refuses(trained))
    rebuilt.reject(trained, doing, reasons)
