"""Removes heads and feed-forward units from a trained model.

An attention's output is a sum over its heads, ``sum_i head_i Wo_i^T + bo``.  Removing a head's rows
in ``q_proj``, ``k_proj``, ``v_proj`` and its columns in ``out_proj`` equals setting its output to
zero, exactly.  What the other heads can make up for is :mod:`.refit`'s work.

A unit of a feed-forward block goes with its row of ``fc1`` and its column of ``fc2``, which equals
setting it to zero, exactly.

Heads can be removed where every head has separate projections: fairseq's ``transformer``,
``transformer_headsize_n``, ``transformer_grouped_heads``, ``transformer_gated_heads``, and the
language models of these kinds.  The result is a ``transformer_headsize_n`` (language model:
``transformer_lm_headsize_n``) with a head count per layer.  A layer may lose all heads: its
attention is then the constant ``bo``.

Shapes: ``H`` heads of sizes ``h_qk`` and ``h_v``; ``Wq, Wk (H h_qk, d)``, ``Wv (H h_v, d)``,
``Wo (d, H h_v)``; F units; ``W1 (F, d)``, ``W2 (d, F)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from collab_lab.trained.attentions import Attention, Retained, attentions, check_known
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.rebuilt import check_options, options_for, rebuilt, weights_of
from fairseq_collab.attention import SeparateAttention

HEADSIZE, LM_HEADSIZE = "transformer_headsize_n", "transformer_lm_headsize_n"


def check_heads(trained: Trained) -> None:
    """Raise UserError unless every head has separate projections, and all have one size.

    Other weights are an error, too.
    """
    modules = [attention.module for attention in attentions(trained.model)]
    separate = MultiheadAttention | SeparateAttention
    kinds = sorted({type(m).__name__ for m in modules if not isinstance(m, separate)})
    if kinds:
        raise UserError(
            f"has heads of the kind {kinds[0]}, which share projections and cannot be removed",
            where=trained.path,
            todo="give a transformer, transformer_headsize_n, transformer_grouped_heads or "
            "transformer_gated_heads, or a language model of these kinds",
        )
    check_options(trained)
    check_known(trained.model, trained.path)
    for projection in ("q_proj", "v_proj"):
        common_head_size(trained, projection)


def pruned(
    trained: Trained, retained: Retained, units: RetainedUnits = MappingProxyType({})
) -> Trained:
    """The model with the ``retained`` heads and ``units`` only, all other weights unchanged.

    Args:
        units: of the blocks that lose some.
    """
    check_retained(trained, retained)
    check_units(trained, units)
    counts = {type_: [*map(len, layers)] for type_, layers in retained.items()}
    options = sized_options(trained, counts)
    if units:
        options |= width_options(trained, units)
    weights = units_removed(trained, retained_weights(trained, retained), units)
    return rebuilt(trained, options, weights)


def check_retained(trained: Trained, retained: Retained) -> None:
    """Raise UserError for heads or layers that the model does not have, or if none are left.

    An attention may lose all heads, but not a model, nor all of its cross-attention.
    """
    if others := sorted({*retained} ^ {*ATTENTION_TYPES}):
        problem = f"{others[0]!r} is missing or none of {', '.join(ATTENTION_TYPES)}"
        raise UserError(problem, "`retained`")
    for name, types in (("the model", ATTENTION_TYPES), ("cross-attention", ("cross",))):
        counts = [count for type_ in types for count in trained.heads[type_]]
        if any(counts) and not any(heads for type_ in types for heads in retained[type_]):
            raise UserError(f"no head of {name} is left", trained.path, "keep more heads")
    for type_, counts in trained.heads.items():
        layers = retained[type_]
        if len(layers) != len(counts):
            problem = f"heads are given for {len(layers)} layers, but it has {len(counts)}"
            raise UserError(f"{type_} attention: {problem}", where=trained.path)
        for layer, (heads, count) in enumerate(zip(layers, counts, strict=True)):
            if sorted(heads) != sorted({*heads} & {*range(count)}):
                problem = f"{list(heads)} are not some of its {count} heads, from 0"
                where = f"{type_} attention, layer {layer}"
                raise UserError(f"{where}: {problem}", trained.path)


def retained_weights(trained: Trained, retained: Retained) -> dict[str, Tensor]:
    """The model's weights with the rows and columns of the ``retained`` heads only."""
    result = weights_of(trained)
    for attention, heads in heads_by_attention(trained, retained):
        if not heads:
            bias, prefix = f"{attention.name}.out_proj.bias", f"{attention.name}."
            result = {n: w for n, w in result.items() if n == bias or not n.startswith(prefix)}
            continue
        # The result scales scores by h_qk^-0.5, whatever the source does.
        scale = attention.module.scaling / head_size(attention, "q_proj") ** -0.5
        for projection, factor in (("q_proj", scale), ("k_proj", 1.0), ("v_proj", 1.0)):
            for kind in ("weight", "bias"):
                name = f"{attention.name}.{projection}.{kind}"
                if name in result:  # ours may have no biases
                    result[name] = factor * rows(result[name], attention.module.num_heads, heads)
        name = f"{attention.name}.out_proj.weight"
        result[name] = rows(result[name].T, attention.module.num_heads, heads).T.contiguous()
    return result


def heads_by_attention(
    trained: Trained, retained: Retained
) -> list[tuple[Attention, Sequence[int]]]:
    """Each attention with its ``retained`` heads."""
    return [
        pair
        for type_, layers in trained.attentions.items()
        for pair in zip(layers, retained[type_], strict=True)
    ]


# ---- feed-forward units --------------------------------------------------------------------------

#: The units to keep of blocks that lose some, counted from 0.
RetainedUnits = Mapping[FeedForward, Sequence[int]]


def check_units(trained: Trained, retained: RetainedUnits) -> None:
    """Raise UserError for units that a block does not have, or a block without units."""
    blocks = {block: block.width for block in feed_forwards(trained.model)}
    for block, units in retained.items():
        width = blocks.get(block, 0)
        if not units or sorted(units) != sorted({*units} & {*range(width)}):
            problem = f"{block}: the units to keep are not some of its {width}, from 0"
            raise UserError(problem, trained.path)


def units_removed(
    trained: Trained, weights: Mapping[str, Tensor], retained: RetainedUnits
) -> dict[str, Tensor]:
    """``weights`` of the model with the ``retained`` units only."""
    result = dict(weights)
    for block, units in retained.items():
        index = list(units)
        for name, axis in (("fc1.weight", 0), ("fc1.bias", 0), ("fc2.weight", 1)):
            name = f"{block.name}.{name}"
            result[name] = result[name].index_select(axis, torch.tensor(index)).contiguous()
    return result


def width_options(trained: Trained, retained: RetainedUnits) -> dict[str, str | None]:
    """``--ffn-dims-in-SIDE`` of the model with the ``retained`` units only."""
    widths: dict[str, list[int]] = {}
    for block in feed_forwards(trained.model):
        widths.setdefault(block.side, []).append(len(retained.get(block, range(block.width))))
    return {f"ffn_dims_in_{side}": ",".join(map(str, of)) for side, of in widths.items()}


def rows(weight: Tensor, num_heads: int, heads: Sequence[int]) -> Tensor:
    """The rows of ``heads``: ``(H h, ...) -> (len(heads) h, ...)``."""
    blocks = weight.unflatten(0, (num_heads, -1))  # (H, h, ...)
    return blocks[list(heads)].flatten(0, 1)


# ---- options of the result -----------------------------------------------------------------------


def sized_options(trained: Trained, heads: Mapping[AttentionType, list[int]]) -> dict[str, Any]:
    """Options of ``transformer_headsize_n`` with the trained head sizes and these head counts.

    Scores are scaled by the head size: d/H would change with the head count.
    """
    lm = trained.is_language_model
    types = ("decoder",) if lm else ATTENTION_TYPES  # those that the architecture has options for
    chosen = {
        **{f"heads_in_{type_}": ",".join(map(str, heads[type_])) or None for type_ in types},
        "head_size": None,
        "qk_head_size": common_head_size(trained, "q_proj"),
        "v_head_size": common_head_size(trained, "v_proj"),
        "key_dim": None,
        "attention_scale": "key",
    }
    return options_for(trained, LM_HEADSIZE if lm else HEADSIZE, chosen)


def head_size(attention: Attention, projection: str) -> int:
    """Size of a head in ``q_proj`` or ``v_proj``."""
    module = attention.module
    if isinstance(module, SeparateAttention):
        return module.v_head_size if projection == "v_proj" else module.qk_head_size
    return module.head_dim


def common_head_size(trained: Trained, projection: str) -> int | None:
    """The one size of heads in all layers; None without heads.  UserError if sizes differ."""
    every = attentions(trained.model)
    sizes = {head_size(attention, projection) for attention in every if attention.module.num_heads}
    if len(sizes) > 1:
        listed = ", ".join(map(str, sorted(sizes)))
        problem = f"its heads have different sizes ({listed} in {projection})"
        todo = "give a model that was trained with --head-size"
        raise UserError(f"{problem}, which {HEADSIZE} has no options for", trained.path, todo)
    return sizes.pop() if sizes else None
