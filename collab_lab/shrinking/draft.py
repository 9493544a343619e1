"""A draft of the smaller model: its weights and options are edited in place, then built once.

An attention's output is a sum over its heads, ``sum_i head_i Wo_i^T + bo``.  Removing a head's rows
in ``q_proj``, ``k_proj``, ``v_proj`` and its columns in ``out_proj`` equals setting its output to
zero, exactly unless the cache is rounded: the numbers that stay then form other groups.  Removing a
unit's row in ``fc1`` and its column in ``fc2`` equals setting the unit to zero, exactly.  The refit
then lets the remaining heads and units compensate.

Heads with separate projections are those of fairseq's ``transformer``, ``transformer_headsize_n``,
``transformer_grouped_heads``, ``transformer_gated_heads``, and the language models of these kinds.
The result is a ``transformer_headsize_n`` (language model: ``transformer_lm_headsize_n``) with a
head count per layer, unless its heads become another kind.  Of heads that share a key or a latent,
what is shared stays, and so does the kind; grouped-query heads go by whole groups, or equally many
of each.  A layer may lose all heads: its attention is then the constant ``bo``.

Shapes: ``H`` heads of sizes ``h_qk`` and ``h_v``; ``Wq, Wk (H h_qk, d)``, ``Wv (H h_v, d)``,
``Wo (d, H h_v)``; F units; ``W1 (F, d)``, ``W2 (d, F)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.shrinking.shape import Kind, key_value_sizes, with_heads
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import (
    Attention,
    attentions,
    heads_together,
    own_bits,
    weights_by_head,
)
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.rebuilt import (
    arch_of,
    options_for,
    rebuilt,
    weights_of,
)
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.attention.building import scaling
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.variants import COLLABORATIVE, GROUPED_QUERY, LATENT, SEPARATE

#: The variants whose models stay of their kind when they lose heads.
SHARING = (COLLABORATIVE, GROUPED_QUERY, LATENT)


class Draft:
    """A smaller model under construction, which starts with the weights of the trained one.

    Args:
        statistics: statistics of its attentions, from which the best weights of new heads follow;
            without them all directions of the weights count equally.

    Attributes:
        weights: the weights by name; cuts change them.
        heads: remaining heads of each attention, counted as in the trained model.
        units: remaining units of each block that loses some.
        kind: kind of the new heads; None if no attention was converted.
        sizes: size of the new heads of each converted attention.
        copy: width of the one latent that all cross-attentions share; 0 if they do not share one.
        bits: bits per number in the KV cache of each attention that has one.
    """

    def __init__(
        self, trained: Trained, statistics: Mapping[Attention, Statistics] | None = None
    ) -> None:
        self.trained, self.statistics = trained, statistics or {}
        self.attentions, self.weights = attentions(trained.model), weights_of(trained)
        self._own = {a: a for a in self.attentions}
        self.heads = {a: [*range(a.module.num_heads)] for a in self.attentions}
        self.units = dict[FeedForward, list[int]]()
        self.kind: Kind | None = None
        self.sizes, self.copy = dict[Attention, int](), 0
        self.bits = {a: own_bits(a.module) for a in self.attentions if a.type != "encoder"}
        self._is_ours, self._rounds = False, False
        self._simulated: list[tuple[str, Callable[[Tensor], Tensor]]] = []

    # ---- what cuts do ----------------------------------------------------------------------------

    def keep_heads(self, attention: Attention, heads: Sequence[int]) -> None:
        """Remove all other heads of an attention."""
        self.use_own_heads()
        attention = self._own[attention]  # of a plan of a model that was opened again, perhaps
        module, name = attention.module, attention.name
        heads = sorted(heads)  # those of a group are neighbours
        if heads == self.heads[attention]:
            return
        before, self.heads[attention] = len(self.heads[attention]), heads
        if not heads:
            if attention in self.bits:
                self.bits[attention] = 0
            bias = f"{name}.out_proj.bias"
            kept = (n for n in self.weights if n == bias or not n.startswith(f"{name}."))
            self.weights = {n: self.weights[n] for n in kept}
            return
        together = heads_together(module)
        groups = [*dict.fromkeys(head // together for head in heads)]
        for weight in weights_by_head(module):
            if weight in ("k_proj", "v_proj"):
                self._change(
                    f"{name}.{weight}", partial(rows, module.num_heads // together, groups)
                )
            else:
                self._change(f"{name}.{weight}", partial(rows, module.num_heads, heads))
        out = f"{name}.out_proj.weight"
        self.weights[out] = rows(module.num_heads, heads, self.weights[out].T).T.contiguous()
        self._scale(attention, scale_of(module, before, self.stays_of_its_kind))

    def keep_units(self, block: FeedForward, units: Sequence[int]) -> None:
        """Remove all other units of a feed-forward block; without any its output is its bias."""
        self.use_own_heads()
        if len(units) == block.width:
            return
        self.units[block] = [*units]
        for name, axis in (("fc1.weight", 0), ("fc1.bias", 0), ("fc2.weight", 1)):
            name = f"{block.name}.{name}"
            weight = self.weights[name]
            index = torch.tensor(self.units[block], dtype=torch.long, device=weight.device)
            self.weights[name] = weight.index_select(axis, index).contiguous()

    def convert_heads(
        self, attention: Attention, kind: Kind, size: int, weights: Mapping[str, Tensor]
    ) -> None:
        """Convert an attention to another kind of heads with these weights (without signature)."""
        if self.kind is not None and self.kind.name != kind.name:
            raise ValueError(f"a model has one kind of heads: {self.kind.name}, not {kind.name}")
        self.kind, self.sizes[attention] = kind, size
        prefix = f"{attention.name}."
        self.weights = {n: w for n, w in self.weights.items() if not n.startswith(prefix)}
        self.weights |= {f"{prefix}{name}": weight for name, weight in weights.items()}

    def round(self, attention: Attention, bits: int) -> None:
        """Round an attention's KV cache to ``bits`` bits per number."""
        self.bits[attention], self._rounds = bits, True

    def simulate(
        self, attention: Attention, projection: str, change: Callable[[Tensor], Tensor]
    ) -> None:
        """Apply ``change`` to the output of a projection (``k_proj``, ``v_proj``), by a hook.

        The weights do not contain the change, so the model cannot be saved.
        """
        self._simulated.append((f"{attention.name}.{projection}", change))

    def use_own_heads(self) -> None:
        """Replace fairseq's attentions, and those with groups or gates, by this project's heads."""
        if not self._is_ours:
            self._is_ours = True
            for attention in self.attentions:
                if attention.module.num_heads:
                    self._scale(attention, attention.module.scaling)

    def _scale(self, attention: Attention, scale: float) -> None:
        """Rescale the queries of an attention whose scores had the scale ``scale`` before."""
        module, heads = attention.module, len(self.heads[attention])
        factor = scale / scale_of(module, heads, self.stays_of_its_kind)
        scaled = "mixing" if "mixing" in weights_by_head(module) else "q_proj"
        self._change(f"{attention.name}.{scaled}", lambda weight: factor * weight)

    def _change(self, module: str, change: Callable[[Tensor], Tensor]) -> None:
        for ending in ("", ".weight", ".bias"):
            if (name := f"{module}{ending}") in self.weights:  # ours may have no biases
                self.weights[name] = change(self.weights[name])

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def stays_of_its_kind(self) -> bool:
        """Whether the trained model's heads share keys, values or a latent, and still will."""
        model = self.trained.model
        return isinstance(model, HeadModel) and model.variant in SHARING

    def module(self, attention: Attention) -> Any:
        """An attention with its remaining heads, before it is converted."""
        if not self._is_ours:
            return attention.module
        like = attention.module.out_proj.weight
        module = with_heads(attention.module, self.heads[attention]).build().to(like)
        prefix = f"{attention.name}."
        own = {n.removeprefix(prefix): w for n, w in self.weights.items() if n.startswith(prefix)}
        module.load_state_dict(own)
        module.cache_bits = own_bits(attention.module)
        return module.eval()

    def attention_left(self, attention: Attention) -> PricedAttention:
        """What is left of an attention by now, with the statistics of the heads that stay."""
        statistics = self.statistics.get(attention)
        if statistics is not None:
            statistics = statistics.of_heads(self.heads[attention])
        return PricedAttention(self.module(attention), statistics)

    def build(self) -> Trained:
        """Build the model; UserError if it has no head left."""
        if any(a.module.num_heads for a in self.attentions) and not any(self.heads.values()):
            raise UserError("no head of the model is left", self.trained.path, "keep more heads")
        if self.kind is None:
            self.use_own_heads()
        result = rebuilt(self.trained, self.options(), self.weights)
        for name, change in self._simulated:
            hook = lambda module, args, output, change=change: change(output)  # noqa: E731
            result.model.get_submodule(name).register_forward_hook(hook)
        return replace(result, is_simulated=bool(self._simulated))

    def options(self) -> dict[str, Any]:
        """All options of the model."""
        options, base = dict[str, Any](), self.trained
        if self._is_ours:
            options = self._own_options()
            base = base.with_model(base.model, options)
        if self.kind is not None:
            return self._options_of_kind(base, self.kind)
        if self._rounds:
            options |= self._bits() | {"cache_bits": "0"}
        return options

    def _bits(self) -> dict[str, Any]:
        """``--cache-bits-in-TYPE``."""
        result = dict[str, Any]()
        for type_, of_type in self._by_type().items():
            if type_ != "encoder" and of_type:
                bits = [self.bits[a] for a in of_type]
                result[f"cache_bits_in_{type_}"] = joined(bits) if any(bits) else None
        return result

    def _by_type(self) -> dict[AttentionType, list[Attention]]:
        return {t: [a for a in self.attentions if a.type == t] for t in ATTENTION_TYPES}

    def _own_options(self) -> dict[str, Any]:
        """Options with the trained sizes of heads, and fewer of them.

        Heads with separate projections become those of ``transformer_headsize_n``, others stay of
        their kind.
        """
        trained, lm = self.trained, self.trained.is_language_model
        by_type = {t: of for t, of in self._by_type().items() if not lm or t == "decoder"}
        chosen: dict[str, Any] = {
            f"heads_in_{t}": joined(len(self.heads[a]) for a in of) or None
            for t, of in by_type.items()
        }
        for name, projected in (("qk_head_size", "queries"), ("v_head_size", "values")):
            chosen[name] = next(iter(distinct_head_sizes(trained, projected)), None)
        if self.units:
            chosen |= self._widths()
        if not self.stays_of_its_kind:
            # Scores are scaled by the head size: d/H would change with the head count.
            chosen |= {"head_size": None, "key_dim": None, "attention_scale": "key"}
            return options_for(trained, arch_of(trained, SEPARATE), chosen)
        variant = trained.model.variant
        groups = "value_heads" if variant is COLLABORATIVE else "key_value_heads"
        for type_, of in by_type.items() if variant is not LATENT else ():
            chosen[f"{groups}_in_{type_}"] = joined(max(1, self._groups(a)) for a in of)
        if variant is LATENT:
            chosen |= {"head_size": None, "key_dim": None}
        return options_for(trained, trained.arch, chosen)

    def _groups(self, attention: Attention) -> int:
        """The number of groups of heads that stay."""
        together = heads_together(attention.module)
        return len({head // together for head in self.heads[attention]})

    def _widths(self) -> dict[str, str]:
        """``--ffn-dims-in-SIDE``."""
        widths: dict[str, list[int]] = {}
        for block in feed_forwards(self.trained.model):
            units = self.units.get(block)
            widths.setdefault(block.side, []).append(block.width if units is None else len(units))
        return {f"ffn_dims_in_{side}": joined(of) for side, of in widths.items()}

    def _options_of_kind(self, base: Trained, kind: Kind) -> dict[str, Any]:
        """Options of the model with new heads.

        Changed are numbers of layers and heads, and what is of the kind: sizes, scale, rounding.
        """
        options = {**kind.options, "cache_bits": "0", **self._bits()}
        numbers = {a: len(heads) for a, heads in self.heads.items()}
        if not self._is_ours:
            check_left_alone(self.trained, self.sizes, kind)
        if kind.has_head_sizes and not is_standard(numbers):
            [(options["qk_head_size"], options["v_head_size"])] = distinct_key_value_sizes(numbers)
        widths = {
            a: self.sizes.get(a, kind.unchanged(a.module, number))
            for a, number in numbers.items()
            if not (self.copy and a.type == "cross")
        }
        if self.copy:
            options["shared_latent_in_cross"] = self.copy
        common = {size for a, size in widths.items() if numbers[a]}
        everywhere = len(common) == 1 and common != {0}
        if everywhere:
            options[kind.size_option] = common.pop()
        elif kind.one_size:
            different = " and ".join(map(str, sorted(common)))
            problem = f"{kind.heads_name} have one {kind.size_name}, not {different}"
            raise UserError(problem, self.trained.path)
        for type_, layers in self._by_type().items():
            if not layers:
                continue
            if not everywhere and layers[0] in widths:
                options[f"{kind.size_option}_in_{type_}"] = joined(widths[a] for a in layers)
            side = "encoder" if type_ == "encoder" else "decoder"
            if len({n for a, n in numbers.items() if a.name.startswith(side)}) > 1:  # pruned
                options[f"heads_in_{type_}"] = joined(numbers[a] for a in layers)
            else:
                options[f"{side}_attention_heads"] = numbers[layers[0]]
            # The loaded model has the layers that remain, and no others.
            options |= {f"{side}_layers": len(layers), f"{side}_layers_to_keep": None}
        # The options of the source's own attention; fairseq has none of these.
        dropped = {option.name for option in fields(kind.variant.options)} - {*kind.inherited}
        return options_for(base, arch_of(self.trained, kind.variant), options, dropped)


# ---- heads ---------------------------------------------------------------------------------------


def rows(num_heads: int, heads: Sequence[int], weight: Tensor) -> Tensor:
    """The rows of ``heads``: ``(H h, ...) -> (len(heads) h, ...)``."""
    by_head = weight.unflatten(0, (num_heads, -1))  # (H, h, ...)
    return by_head[list(heads)].flatten(0, 1)


def scale_of(module: Any, heads: int, stays: bool) -> float:
    """The scale of the scores of an attention that keeps ``heads`` of its heads.

    Args:
        stays: whether the model keeps its kind of heads.
    """
    size = module.q_proj.out_features / module.num_heads
    if isinstance(module, CollaborativeAttention):
        size = module.key_dim / heads
    rule = getattr(module, "scale", "key") if stays else "key"
    return scaling(rule, module.embed_dim, heads, size)


def distinct_head_sizes(trained: Trained, of: str) -> set[int]:
    """The sizes of heads in a model: of ``queries`` (except with shared keys) or of ``values``."""
    head_sizes = set[int]()
    for attention in attentions(trained.model):
        module = attention.module
        if not module.num_heads:
            continue
        if of == "values":
            head_sizes.add(module.out_proj.in_features // module.num_heads)
        elif not isinstance(module, CollaborativeAttention):
            head_sizes.add(module.q_proj.out_features // module.num_heads)
    return head_sizes


def size_problems(trained: Trained) -> Iterator[str]:
    """Reasons why no options describe heads of such sizes, which stock fairseq may have."""
    for projected in ("queries", "values"):
        head_sizes = distinct_head_sizes(trained, projected)
        if len(head_sizes) > 1:
            listed = ", ".join(map(str, sorted(head_sizes)))
            yield f"its heads have different sizes of {projected} ({listed}), options have one"


def distinct_key_value_sizes(every: Iterable[Attention]) -> set[tuple[int, int]]:
    """All pairs ``h_qk`` and ``h_v`` that occur among attentions with separate projections."""
    return {key_value_sizes(a.module) for a in every if a.module.num_heads}


def is_standard(numbers: Mapping[Attention, int]) -> bool:
    """Whether the remaining heads all have the standard size d/H, so that no option must say it."""
    return all(
        (key * number, value * number) == (a.module.embed_dim,) * 2
        for a, number in numbers.items()
        for key, value in ([key_value_sizes(a.module)] if number else [])
    )


def check_left_alone(trained: Trained, given: Collection[Attention], kind: Kind) -> None:
    """Raise UserError unless all attentions that are not converted can stay as they are."""
    for attention in attentions(trained.model):
        module = attention.module
        if attention in given or not kind.has_head_sizes or not module.num_heads:
            continue
        if not math.isclose(module.scaling, key_value_sizes(module)[0] ** -0.5):
            problem = (
                f"{attention} cannot stay unchanged: its heads scale scores by a factor "
                f"other than (head size)^-0.5, which a model with {kind.heads_name} cannot have"
            )
            todo = f"convert it as well: give a {kind.size_name} above 0 for it"
            raise UserError(problem, trained.path, todo)


def joined(numbers: Iterable[int]) -> str:
    """Numbers joined by commas, as options expect them: ``64,32``."""
    return ",".join(map(str, numbers))
