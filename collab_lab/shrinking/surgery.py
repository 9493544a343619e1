"""Removes heads and feed-forward units from a trained model.

An attention's output is a sum over its heads, ``sum_i head_i Wo_i^T + bo``.  Removing a head's rows
in ``q_proj``, ``k_proj``, ``v_proj`` and its columns in ``out_proj`` equals setting its output to
zero, exactly.  What the other heads can make up for is :mod:`.refit`'s work.

A unit of a feed-forward block goes with its row of ``fc1`` and its column of ``fc2``, which equals
setting it to zero, exactly.

Heads with separate projections are those of fairseq's ``transformer``, ``transformer_headsize_n``,
``transformer_grouped_heads``, ``transformer_gated_heads``, and the language models of these kinds.
The result is a ``transformer_headsize_n`` (language model: ``transformer_lm_headsize_n``) with a
head count per layer.  Of heads that share a key or a latent, what is shared stays, and so does the
kind; grouped-query heads go by whole groups, or equally many of each.  A layer may lose all heads:
its attention is then the constant ``bo``.

Shapes: ``H`` heads of sizes ``h_qk`` and ``h_v``; ``Wq, Wk (H h_qk, d)``, ``Wv (H h_v, d)``,
``Wo (d, H h_v)``; F units; ``W1 (F, d)``, ``W2 (d, F)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_lab.trained.attentions import (
    Attention,
    Retained,
    attentions,
    heads_together,
    parts_of_heads,
    weight_problems,
)
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.rebuilt import option_problems, options_for, rebuilt, reject, weights_of
from fairseq_collab.attention import CollaborativeAttention, SeparateAttention
from fairseq_collab.attention.building import scaling
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.variants import COLLABORATIVE, GROUPED_QUERY, LATENT

#: Attentions whose heads share keys, or keys and values.
SHARED = (CollaborativeAttention, GroupedQueryAttention, LatentAttention)

HEADSIZE, LM_HEADSIZE = "transformer_headsize_n", "transformer_lm_headsize_n"


def check_heads(trained: Trained) -> None:
    """Raise UserError, with all reasons, unless heads can be removed from the model."""
    reject(trained, "its heads cannot be removed", head_problems(trained))


def head_problems(trained: Trained) -> Iterator[str]:
    """Why no heads can be removed from a model."""
    known = (MultiheadAttention, SeparateAttention, *SHARED)
    modules = [attention.module for attention in attentions(trained.model)]
    for kind in sorted({type(m).__name__ for m in modules if not isinstance(m, known)}):
        yield f"heads of the kind {kind} are not known"
    if any(getattr(m, "latent_norm", None) is not None for m in modules):
        yield "its latents are normalised: no price is known"
    yield from option_problems(trained)
    yield from weight_problems(trained.model)
    for projection in ("queries", "values"):
        sizes = sizes_of_heads(trained, projection)
        if len(sizes) > 1:
            listed = ", ".join(map(str, sorted(sizes)))
            yield f"its heads have different sizes of {projection} ({listed}), options have one"


def pruned(
    trained: Trained, retained: Retained, units: RetainedUnits = MappingProxyType({})
) -> Trained:
    """The model with the ``retained`` heads and ``units`` only, all other weights unchanged.

    Args:
        units: of the blocks that lose some.
    """
    check_retained(trained, retained)
    check_units(trained, units)
    check_groups(trained, retained)
    options = sized_options(trained, retained)
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


def check_groups(trained: Trained, retained: Retained) -> None:
    """Raise UserError unless all groups that stay keep equally many heads."""
    for attention, heads in heads_by_attention(trained, retained):
        stay = Counter(head // heads_together(attention.module) for head in heads)
        if len({*stay.values()}) > 1:
            problem = f"{attention}: groups of heads would keep {sorted(stay.values())} heads"
            todo = "remove equally many of each group, or whole groups"
            raise UserError(problem, trained.path, todo)


def retained_weights(trained: Trained, retained: Retained) -> dict[str, Tensor]:
    """The model's weights with the rows and columns of the ``retained`` heads only."""
    result, stays = weights_of(trained), stays_of_its_kind(trained)
    for attention, heads in heads_by_attention(trained, retained):
        if not heads:
            bias, prefix = f"{attention.name}.out_proj.bias", f"{attention.name}."
            result = {n: w for n, w in result.items() if n == bias or not n.startswith(prefix)}
            continue
        module = attention.module
        together = heads_together(module)
        heads = sorted(heads) if together > 1 else heads  # groups are of neighbours
        groups = [*dict.fromkeys(head // together for head in heads)]
        scaled = "mixing" if "mixing" in parts_of_heads(module) else "q_proj"
        for part in parts_of_heads(module):
            is_group = part in ("k_proj", "v_proj")
            number, stay = (
                (module.num_heads // together, groups) if is_group else (module.num_heads, heads)
            )
            # The result scales scores by another number, and these make up for it.
            factor = module.scaling / scale_of(module, len(heads), stays) if part == scaled else 1.0
            for kind in ("", ".weight", ".bias"):
                name = f"{attention.name}.{part}{kind}"
                if name in result:  # ours may have no biases
                    result[name] = factor * rows(result[name], number, stay)
        name = f"{attention.name}.out_proj.weight"
        result[name] = rows(result[name].T, module.num_heads, heads).T.contiguous()
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
            result[name] = (
                result[name]
                .index_select(axis, torch.tensor(index).to(result[name].device))
                .contiguous()
            )
    return result


def width_options(trained: Trained, retained: RetainedUnits) -> dict[str, str]:
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


def sized_options(trained: Trained, retained: Retained) -> dict[str, Any]:
    """Options of the model with the ``retained`` heads, with the trained sizes of heads.

    Heads with separate projections become those of ``transformer_headsize_n``, others stay of
    their kind.
    """
    lm = trained.is_language_model
    types = ("decoder",) if lm else ATTENTION_TYPES  # those that the architecture has options for
    chosen: dict[str, Any] = {
        **{f"heads_in_{t}": joined(map(len, retained[t])) or None for t in types},
        "qk_head_size": next(iter(sizes_of_heads(trained, "queries")), None),
        "v_head_size": next(iter(sizes_of_heads(trained, "values")), None),
    }
    if not stays_of_its_kind(trained):
        # Scores are scaled by the head size: d/H would change with the head count.
        chosen |= {"head_size": None, "key_dim": None, "attention_scale": "key"}
        return options_for(trained, LM_HEADSIZE if lm else HEADSIZE, chosen)
    variant = trained.model.variant
    groups = "value_heads" if variant is COLLABORATIVE else "key_value_heads"
    for type_ in types if variant is not LATENT else ():
        chosen[f"{groups}_in_{type_}"] = joined(
            max(1, len({head // heads_together(a.module) for head in heads}))
            for a, heads in heads_by_attention(trained, retained)
            if a.type == type_
        )
    if variant is LATENT:
        chosen |= {"head_size": None, "key_dim": None}
    return options_for(trained, trained.arch, chosen)


def joined(numbers: Iterable[int]) -> str:
    """Numbers as options take them: ``64,32``."""
    return ",".join(map(str, numbers))


def stays_of_its_kind(trained: Trained) -> bool:
    """Whether a model without some heads is of the same architecture."""
    model = trained.model
    return isinstance(model, HeadModel) and model.variant in (COLLABORATIVE, GROUPED_QUERY, LATENT)


def scale_of(module: Any, heads: int, stays: bool) -> float:
    """The scale of scores of an attention that keeps some of its heads.

    Args:
        stays: whether its model stays of its kind.
    """
    size = module.q_proj.out_features / module.num_heads
    if isinstance(module, CollaborativeAttention):
        size = module.key_dim / heads
    rule = getattr(module, "scale", "key") if stays else "key"
    return scaling(rule, module.embed_dim, heads, size)


def sizes_of_heads(trained: Trained, of: str) -> set[int]:
    """The sizes of heads in all layers: ``queries``, but those of a shared key, or ``values``."""
    sizes = set[int]()
    for attention in attentions(trained.model):
        module = attention.module
        if not module.num_heads:
            continue
        if of == "values":
            sizes.add(module.out_proj.in_features // module.num_heads)
        elif not isinstance(module, CollaborativeAttention):
            sizes.add(module.q_proj.out_features // module.num_heads)
    return sizes
