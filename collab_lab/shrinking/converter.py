"""Convert a trained model: checked before anything is computed, its sizes from options, rebuilt.

Accepted are fairseq's own ``transformer`` and ``transformer_lm``, ``transformer_headsize_n`` and
its language model, if values have size ``d/H`` and all layers of a side have equally many heads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from collab_common import AttentionType
from collab_common.errors import UserError, reject_unused
from collab_common.progress import bar
from collab_lab.mathematics.attention_price import Point, TrainedAttention, point
from collab_lab.mathematics.shared_projection import STEPS
from collab_lab.shrinking.kinds import HeadKind, PricedWeights, heads_of_one_latent, sizes_of
from collab_lab.shrinking.surgery import joined
from collab_lab.statistics.attentions import Statistics, check_of_caches, matched
from collab_lab.trained.attentions import Attention, attentions, own_bits, weight_problems
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.rebuilt import option_problems, options_for, rebuilt, reject, weights_of
from fairseq_collab.attention import SeparateAttention
from fairseq_collab.attention.rounding import BITS
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.options import listed_values
from fairseq_collab.models.variants import SEPARATE, family_of


def check(trained: Trained, kind: HeadKind) -> None:
    """Raise UserError for a model without a counterpart in ``kind``, with all reasons."""
    reject(trained, f"cannot be converted to {kind.heads_name}", problems(trained, kind))


def problems(trained: Trained, kind: HeadKind) -> Iterator[str]:
    """Why a model has no counterpart in ``kind``."""
    try:
        arch_with(trained, kind)
    except UserError as error:
        yield error.problem
        return
    yield from option_problems(trained)
    yield from weight_problems(trained.model)
    every = attentions(trained.model)
    if kind.has_sizes:
        sizes = head_sizes(every)
        if not is_standard(every) and len(sizes) > 1:
            listed = ", ".join(f"{key} and {value}" for key, value in sorted(sizes))
            yield f"heads have sizes {listed} (keys, values), and {kind.heads_name} one"
    first_of_side: dict[bool, Attention] = {}  # of the encoder, and of the decoder
    for attention in every:
        module = attention.module
        if isinstance(module, SeparateAttention):  # which alone may be resized
            actual = {"keys": module.qk_head_size, "values": module.v_head_size}
            for part in kind.standard_sized:
                if actual[part] * module.num_heads != module.embed_dim:
                    yield (
                        f"{attention}: {module.num_heads} heads have {part} of size "
                        f"{actual[part]}, not {module.embed_dim}/H: they were pruned or resized"
                    )
        if kind.any_heads:
            continue
        first = first_of_side.setdefault(attention.type == "encoder", attention)
        if not module.num_heads:
            yield f"{attention} has no heads to convert"
        elif module.num_heads != first.module.num_heads:
            expected = f"{first} has {first.module.num_heads}"
            yield f"{attention} has {module.num_heads} heads and {expected}"


def head_sizes(every: Iterable[Attention]) -> set[tuple[int, int]]:
    """``h_qk`` and ``h_v`` of all attentions with heads of separate projections."""
    return {sizes_of(a.module) for a in every if a.module.num_heads}


def is_standard(every: Iterable[Attention]) -> bool:
    """Whether all heads have size d/H, which options need not say."""
    return all(
        (key * a.module.num_heads, value * a.module.num_heads) == (a.module.embed_dim,) * 2
        for a in every
        for key, value in ([sizes_of(a.module)] if a.module.num_heads else [])
    )


def arch_with(trained: Trained, kind: HeadKind) -> str:
    """The architecture with heads of ``kind`` that goes with a model."""
    model = trained.model
    family = family_of(type(model))
    if family is None or (isinstance(model, HeadModel) and model.variant is not SEPARATE):
        raise UserError(
            f"a {type(model).__name__} cannot be converted to {kind.heads_name}",
            trained.path,
            "give a transformer, a transformer_lm or a transformer_headsize_n",
        )
    return f"{family.prefix}{kind.variant.name}"


def options_with(
    trained: Trained,
    kind: HeadKind,
    sizes: Mapping[Attention, int],
    bits: Mapping[Attention, int],
    shared: int = 0,
) -> dict[str, Any]:
    """All options of the model with heads of ``kind`` of these sizes.

    Changed are numbers of layers and heads, and what is of ``kind``: sizes, scale, bias, rounding.

    Args:
        shared: width of the latent of all cross-attentions; 0: each has its own.
    """
    options = {**kind.options, "cache_bits": "0"}
    every = attentions(trained.model)
    check_left_alone(sizes, trained, kind)
    if kind.has_sizes and not is_standard(every):
        [(options["qk_head_size"], options["v_head_size"])] = head_sizes(every)
    widths = {
        a: sizes.get(a, kind.unchanged_size(a.module))
        for a in every
        if not (shared and a.type == "cross")
    }
    if shared:
        options["shared_latent_in_cross"] = shared
    common = {size for a, size in widths.items() if a.module.num_heads}
    everywhere = len(common) == 1 and common != {0}
    if everywhere:
        options[kind.size_option] = common.pop()
    elif kind.one_size:
        different = " and ".join(map(str, sorted(common)))
        problem = f"{kind.heads_name} have one {kind.size_name}, not {different}"
        raise UserError(problem, trained.path)
    for type_, layers in trained.attentions.items():
        if not layers:
            continue
        if not everywhere and layers[0] in widths:
            options[f"{kind.size_option}_in_{type_}"] = joined(widths[a] for a in layers)
        if type_ != "encoder":
            of_layers = [bits.get(a, 0) for a in layers]
            options[f"cache_bits_in_{type_}"] = joined(of_layers) if any(of_layers) else None
        side = "encoder" if type_ == "encoder" else "decoder"
        if len({a.module.num_heads for a in every if a.name.startswith(side)}) > 1:  # pruned
            options[f"heads_in_{type_}"] = joined(a.module.num_heads for a in layers)
        else:
            options[f"{side}_attention_heads"] = layers[0].module.num_heads
        # The loaded model has the layers that remain, and no others.
        options |= {f"{side}_layers": len(layers), f"{side}_layers_to_keep": None}
    # The options of the source's own attention; fairseq has none of these.
    dropped = {option.name for option in fields(kind.variant.options)} - {*kind.inherited}
    return options_for(trained, arch_with(trained, kind), options, dropped)


# ---- sizes ---------------------------------------------------------------------------------------


def chosen_sizes(
    default: int | None,
    by_type: Mapping[AttentionType, str | int | None],
    trained: Trained,
    kind: HeadKind,
) -> dict[Attention, int]:
    """The size of every attention as options give it, without those left alone.

    Args:
        default: the size of all attentions that ``by_type`` does not name.
        by_type: a number, or one for each layer: ``64,32``.
    """
    sizes = dict[Attention, int]()
    named = {type_ for type_, text in by_type.items() if text is not None}
    if named >= {type_ for type_, layers in trained.attentions.items() if layers}:
        reject_unused("has no effect where every attention type has sizes", size=default)
    for type_, layers in trained.attentions.items():
        of_type, listed = f"`by_type[{type_}]`", [default] * len(layers)
        if type_ in named:
            if not layers:
                raise UserError("the model lacks this attention", of_type, "leave it out")
            listed = _listed(of_type, by_type[type_], len(layers), 0)
        for attention, size in zip(layers, listed, strict=True):
            if size is None:
                todo = f"give {of_type} or `size`"
                raise UserError(f"no {kind.size_name} for {attention}", trained.path, todo)
            if type_ in named and size == 0:
                continue
            if allowed_range := kind.out_of_range(attention.module, size):
                problem = f"{attention}: {kind.size_name} {size} is out of range"
                raise UserError(problem, trained.path, allowed_range)
            sizes[attention] = size
    check_left_alone(sizes, trained, kind)
    return sizes


def check_left_alone(sizes: Mapping[Attention, int], trained: Trained, kind: HeadKind) -> None:
    """Raise UserError unless all attentions but those in ``sizes`` can be left as they are."""
    for attention in attentions(trained.model):
        module = attention.module
        if attention in sizes or not kind.has_sizes or not module.num_heads:
            continue
        if not math.isclose(module.scaling, sizes_of(module)[0] ** -0.5):
            problem = f"{attention}: heads with another scale of scores cannot be left as they are"
            raise UserError(problem, trained.path, f"give a {kind.size_name} for them, too")


def _listed(option: str, text: Any, number: int, allowed: int | tuple[str, ...]) -> list[Any]:
    try:
        return listed_values(option, str(text), number, allowed)
    except ValueError as error:
        raise UserError(str(error)) from error


def chosen_bits(cache_bits: str | int | None, trained: Trained) -> dict[Attention, int]:
    """The attentions whose cache is rounded, and to how many bits.

    Args:
        cache_bits: a number for all, or one for each attention with a cache (``4,8,0``: 0 for no
            rounding); None, or ``none``: no rounding.
    """
    cached = [attention for attention in attentions(trained.model) if attention.type != "encoder"]
    allowed, text = ("0", *map(str, BITS)), "0" if cache_bits in (None, "none") else str(cache_bits)
    numbers = _listed("`cache_bits`", text, len(cached), allowed)
    return {a: int(number) for a, number in zip(cached, numbers, strict=True) if int(number)}


# ---- work ----------------------------------------------------------------------------------------


class Converter:
    """Converts attentions of one model.

    Args:
        statistics: of all its attentions; without them all directions of the weights count equally.
    """

    def __init__(
        self,
        trained: Trained,
        kind: HeadKind,
        statistics: Mapping[Attention, Statistics] | None,
    ):
        self.trained, self.kind = trained, kind
        check(trained, kind)
        statistics = {} if statistics is None else matched(statistics, trained)
        check_of_caches(statistics, trained)
        self.attentions = {
            attention: TrainedAttention(attention.module, statistics.get(attention))
            for attention in attentions(trained.model)
            if attention.module.num_heads
        }
        self.own_bits = {a: bits for a in self.attentions if (bits := own_bits(a.module))}
        self.curve = functools.cache(self._curve)

    @property
    def crossing(self) -> list[Attention]:
        """The cross-attentions, which read the same inputs."""
        return [attention for attention in self.attentions if attention.type == "cross"]

    def convert(
        self,
        sizes: Mapping[Attention, int],
        bits: Mapping[Attention, int] = MappingProxyType({}),
        shared: bool = False,
    ) -> tuple[Trained, dict[Attention, float]]:
        """The model with new heads in place of the attentions in ``sizes``, and prices in bits.

        All other attentions keep the heads that they have.

        Args:
            bits: of the numbers in a KV cache; 0 where they are not rounded.
            shared: whether all cross-attentions have one latent, of one size.
        """
        trained, kind = self.trained, self.kind
        together = self.crossing if shared else []
        width = sizes[together[0]] if together else 0
        options = options_with(trained, kind, sizes, bits, width)
        unchanged = {
            attention: kind.unchanged_size(attention.module)
            for attention in self.attentions
            if kind.converts_all
        }
        new = self._together(together, width) if together else {}
        new |= {
            attention: kind.convert(self.attentions[attention], size)
            for attention, size in bar("attentions", list({**unchanged, **sizes}.items()))
            if attention not in new
        }
        prices = {attention: new[attention][1] for attention in sizes}
        for attention, number in bits.items():
            weights = new[attention][0] if attention in new else None
            of_it = self.attentions[attention]
            rounding = of_it.rounding_price(weights, number, kind.scale(of_it))
            prices[attention] = prices.get(attention, 0.0) + rounding
        replaced = tuple(f"{attention.name}." for attention in new)
        state = {n: w for n, w in weights_of(trained).items() if not n.startswith(replaced)}
        for attention, (weights, _) in new.items():
            is_source = attention in together and width == attention.module.kdim
            state |= {
                f"{attention.name}.{name}": weight
                for name, weight in weights.items()
                if not (is_source and name.startswith("latent_proj"))  # which is the identity
            }
        return rebuilt(trained, options, state), prices

    def _together(
        self, together: Sequence[Attention], size: int, steps: int = STEPS
    ) -> dict[Attention, PricedWeights]:
        """New attentions with one latent."""
        made = heads_of_one_latent([self.attentions[a] for a in together], size, steps)
        return dict(zip(together, made, strict=True))

    @functools.cached_property
    def shared_curves(self) -> dict[Attention, list[Point]]:
        """Each of several cross-attentions with one latent of all, if the kind has that.

        As :attr:`curve`: a price is what this attention loses.  Costs are left out.
        """
        kind, curves = self.kind, {attention: list[Point]() for attention in self.crossing}
        sizes = kind.grid(self.crossing[0].module) if len(curves) > 1 and kind.can_share else []
        for size in sizes:
            for attention, (weights, price) in self._together(self.crossing, size, 0).items():
                trained = self.attentions[attention]
                prices = trained.rounding_prices(weights, (0, *BITS), kind.scale(trained))
                curves[attention] += [
                    Point(size, 0, 0, price + rounding, bits, shared=True)
                    for bits, rounding in zip((0, *BITS), prices, strict=True)
                ]
        return curves

    def _curve(self, attention: Attention) -> list[Point]:
        """An attention at all sizes of a grid and all bits, before L-BFGS; size 0: as it is."""
        kind, module, trained = self.kind, attention.module, self.attentions[attention]
        made = [(0, (module.state_dict(), 0.0))] if kind.unchanged_size(module) == 0 else []
        made += [(size, kind.convert(trained, size, steps=0)) for size in kind.grid(module)]
        numbers = (0,) if attention.type == "encoder" else (0, *BITS)
        scale = kind.scale(trained)
        rounding = [trained.rounding_prices(weights if size else None, numbers, scale)
                    for size, (weights, _) in made]  # fmt: skip
        return [
            point(attention, size, weights, price + rounding[index][column], bits)
            for column, bits in enumerate(numbers)
            for index, (size, (weights, price)) in enumerate(made)
        ]
