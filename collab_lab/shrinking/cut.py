"""A cut: one way to make a model smaller, as a class; see docs/own_cuts.md.

A cut says why it does not fit a model, which shapes it offers for a site and at what price, and how
to give a draft one of these shapes.  A plan takes at most one shape for each *part* of a site
(heads, units, cache) and adds their prices.  Prices are predicted losses in bits per target token.
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
from collab_lab.shrinking.draft import Draft, distinct_key_value_sizes, is_standard
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

#: The most sizes of an attention that a search tries.
MOST_SIZES = 16
#: The ``engines`` of a cut whose models run in every engine.
EVERY_ENGINE = tuple(ENGINES)
#: Bits of a cached number; 0: no rounding.
ANY_BITS = (0, *BITS)


class Offer(NamedTuple):
    """A shape that a site can have, and its price: the predicted loss in bits per target token."""

    shape: Shape
    price: float


class Tie(NamedTuple):
    """A constraint on some sites: if one has a shape with a value of ``of``, all have this value.

    Attributes:
        of: computes the value of a shape; None for a shape without constraint.
    """

    sites: Sequence[Site]
    of: Callable[[Shape], Hashable | None]


class Cut(ABC):
    """One way to make a model smaller.

    Attributes:
        name: name of the cut; for cuts of the cache, also its name in ``--kinds``.
        part: what it cuts: heads, units, or cache.
        engines: engines in which the cut model really is smaller.
        simulated: whether the change exists only in this process: see :meth:`.Draft.simulate`.
    """

    name: ClassVar[str]
    part: ClassVar[str]
    engines: ClassVar[tuple[str, ...]] = ("fairseq",)
    simulated: ClassVar[bool] = False

    @property
    def identity(self) -> Hashable:
        """A key for :meth:`.Evidence.once`: equal for cuts of one class with equal attributes."""
        attributes = tuple(sorted(vars(self).items()))
        try:
            hash(attributes)
        except TypeError:  # a list, for example, which may change
            return self
        return type(self), attributes

    def refuses(self, trained: Trained) -> Iterable[str]:
        """All reasons why this cut does not fit a model; empty if it does."""
        return ()

    @abstractmethod
    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        """The shapes that this cut can give a site, with their prices; empty for other sites."""

    def fits(self, site: Site, shape: Shape) -> bool:
        """Whether a site can have this shape with the remaining heads.

        A shape that would not be smaller than the remaining heads is not worth it.
        """
        return True

    def ties(self, sites: Sequence[Site]) -> Iterable[Tie]:
        """Constraints by which the shapes of some sites must agree."""
        return ()

    @abstractmethod
    def apply(self, draft: Draft, site: Site, shape: Shape) -> float | None:
        """Give a site of the draft this shape.

        Returns:
            The price of the shape for the heads that the draft has left there, in bits per target
            token; None if the offered price is still right.
        """

    def apply_all(self, draft: Draft, shapes: Mapping[Site, Shape]) -> dict[Site, float]:
        """Call :meth:`apply` for all these sites, one after the other."""
        prices = dict[Site, float]()
        for site, shape in bar(self.name, list(shapes.items())):
            price = self.apply(draft, site, shape)
            if price is not None:
                prices[site] = price
        return prices


class NewHeads(Cut):
    """A cut that converts attentions to another kind of heads, for a smaller KV cache.

    A subclass sets :attr:`kind` and defines :meth:`convert`.
    """

    part = "cache"
    engines: ClassVar[tuple[str, ...]] = ("fairseq", "onnx")
    kind: Kind
    #: Which of the heads' keys and values must have the standard size d/H.
    standard_sized: tuple[str, ...] = ()
    #: Whether attentions may have any number of heads, also none, and heads of any size.
    any_heads: ClassVar[bool] = True

    @abstractmethod
    def convert(self, attention: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        """The weights of the new attention in place of ``attention.module``, and their price.

        Args:
            attention: the trained attention and its statistics.
            size: size of the new heads: a width, or a number of key/value heads.
            steps: number of L-BFGS steps; 0 is faster, and the price is a few per cent higher.
        """

    # ---- sizes -----------------------------------------------------------------------------------

    def exact_size(self, module: Any) -> int:
        """A size at which the new heads compute exactly what the attention computes."""
        return self.kind.exact(module, int(module.num_heads))

    def out_of_range(self, module: Any, size: int) -> str | None:
        """A text with the allowed sizes if ``size`` is not one of them; otherwise None."""
        exact = self.exact_size(module)
        return None if 1 <= size <= exact else f"give one from 1 to {exact}, which is exact"

    def grid(self, module: Any) -> list[int]:
        """At most 16 sizes for the search, ascending to the exact one."""
        exact = self.exact_size(module)
        sizes = {max(1, exact * step // MOST_SIZES) for step in range(1, MOST_SIZES + 1)}
        return sorted(size for size in sizes if self.out_of_range(module, size) is None)

    def scale(self, attention: PricedAttention) -> float:
        """The scale of the new scores; queries make up for it, and latents keep the module's."""
        return attention.scale

    # ---- a cut -----------------------------------------------------------------------------------

    def refuses(self, trained: Trained) -> Iterator[str]:
        model, kind = trained.model, self.kind
        is_other = isinstance(model, HeadModel) and model.variant is not SEPARATE
        if is_other or family_of(type(model)) is None:
            yield (
                f"a {type(model).__name__} is neither a transformer, nor a "
                "transformer_lm, nor a transformer_headsize_n"
            )
            return
        if (arch := arch_of(trained, kind.variant)) not in ARCH_MODEL_REGISTRY:
            yield f"there is no architecture {arch}: register the heads for this family of models"
        yield from model_problems(trained)
        every = attentions(model)
        if kind.has_head_sizes:
            head_sizes = distinct_key_value_sizes(every)
            if not is_standard({a: a.module.num_heads for a in every}) and len(head_sizes) > 1:
                listed = ", ".join(f"{key} and {value}" for key, value in sorted(head_sizes))
                yield f"heads have sizes {listed} (keys, values), and {kind.heads_name} one"
        yield from self._unequal(every)

    def _unequal(self, every: Iterable[Attention]) -> Iterator[str]:
        """Heads that were pruned or resized, if the kind has no options for them."""
        first_of_side: dict[bool, Attention] = {}  # of the encoder, and of the decoder
        for attention in every:
            module = attention.module
            if isinstance(module, SeparateAttention):  # only these may be resized
                actual = {"keys": module.qk_head_size, "values": module.v_head_size}
                for projected in self.standard_sized:
                    if actual[projected] * module.num_heads != module.embed_dim:
                        yield (
                            f"{attention}: {module.num_heads} heads have {projected} of size "
                            f"{actual[projected]}, not {module.embed_dim}/H: they were pruned or "
                            "resized"
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
        """Offers of all sizes of the grid with all numbers of bits, priced without L-BFGS."""
        if not isinstance(site, Attention) or not site.module.num_heads:
            return ()
        return evidence.once((self.identity, site), lambda: self._offers(site, evidence))

    def _offers(self, site: Attention, evidence: Evidence) -> list[Offer]:
        attention = evidence.whole_attention(site)
        new = {size: self.convert(attention, size, 0) for size in self.grid(site.module)}
        return [*self.offers_with_bits(site, attention, new)]

    def offers_with_bits(
        self, site: Attention, attention: PricedAttention, new: Mapping[int, PricedWeights]
    ) -> Iterator[Offer]:
        """Offers of new heads of several sizes, unrounded and with every number of bits."""
        every = tuple(range(site.module.num_heads))
        bits = (0,) if site.type == "encoder" else ANY_BITS
        rounding = {
            size: attention.rounding_prices(weights, bits, self.scale(attention))
            for size, (weights, _) in new.items()
        }
        for column, number in enumerate(bits):
            for size, (_, price) in new.items():
                shape = Shape(every, kind=self.kind, size=size, bits=number)
                yield Offer(shape, price + rounding[size][column])

    def arranged(self, shapes: Mapping[Attention, Shape]) -> Mapping[Attention, Shape]:
        """The shapes of all sites that this cut gives, after they were adjusted to each other."""
        return shapes

    def apply(self, draft: Draft, site: Site, shape: Shape) -> float | None:
        assert isinstance(site, Attention)
        attention = draft.attention_left(site)
        return self.put(draft, site, shape, attention, self.convert(attention, shape.size))

    def put(
        self,
        draft: Draft,
        site: Attention,
        shape: Shape,
        attention: PricedAttention,
        new: PricedWeights,
    ) -> float:
        """Put new heads into a draft, and return their price, including that of rounding."""
        weights, price = new
        rounding = attention.rounding_price(weights, shape.bits, self.scale(attention))
        draft.convert_heads(site, self.kind, shape.size, weights)
        if site.type != "encoder":
            draft.round(site, shape.bits)
        return price + rounding


def reject(trained: Trained, cuts: Iterable[Cut], doing: str) -> None:
    """Raise UserError with all reasons why some cuts do not fit a model, if there are any.

    Args:
        doing: what cannot be done with the model, for example "cannot be converted to a latent".
    """
    reasons = dict.fromkeys(reason for cut in cuts for reason in cut.refuses(trained))
    rebuilt.reject(trained, doing, reasons)
