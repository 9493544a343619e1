"""Heads, and units of the feed-forward layers, taken out of a trained model.

An attention's output is a sum over its heads, ``sum_i head_i Wo_i^T + bo``, so that a head is gone,
exactly, with its rows of ``q_proj``, ``k_proj``, ``v_proj`` and its columns of ``out_proj``.  What
is left computes what the whole model computes with these heads' outputs set to zero.  A unit of a
feed-forward layer goes likewise, with its row of ``fc1`` and its column of ``fc2``.

The result is a ``transformer_headsize_n`` (or ``transformer_lm_headsize_n``, of a language model)
whose heads are counted by layer, whatever the model was.
Whoever chooses heads (votes, gates, importances, chance) says which stay, as :data:`Kept`.

Shapes: ``H`` heads of sizes ``h_qk`` and ``h_v``; ``Wq, Wk (H h_qk, d)``, ``Wv (H h_v, d)``,
``Wo (d, H h_v)``; ``W1 (ff, d)``, ``W2 (d, ff)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.checkpoints.opener import checkpoint_of, plain_config
from fairseq_collab.checkpoints.prune.trained import (
    HEADSIZE,
    Trained,
    build,
    sized_options,
    weights_of,
)
from fairseq_collab.models.layers import Site

#: The heads that stay, counted from 0, for each site and layer.
Kept = Mapping[Site, Sequence[Sequence[int]]]


def pruned_checkpoint(trained: Trained, kept: Kept, ffn_dim: int | None = None) -> dict[str, Any]:
    """The checkpoint of ``trained`` with the ``kept`` heads only, without its training state.

    Args:
        ffn_dim: units to keep in each feed-forward layer, those with the largest weights; all of
            them unless given.

    Raises:
        UserError: ``kept`` does not fit the model, or it has fewer units.
    """
    check_kept(trained, kept)
    weights = keep_heads(trained, weights_of(trained), kept)
    options = sized_options(
        trained, HEADSIZE, {site: [len(heads) for heads in layers] for site, layers in kept.items()}
    )
    if ffn_dim is not None:
        weights = keep_units(trained, weights, ffn_dim)
        for side in ("encoder", "decoder"):
            if f"{side}_ffn_embed_dim" in options:  # a language model has no encoder
                options[f"{side}_ffn_embed_dim"] = ffn_dim
    model = build(trained, options, weights)
    cfg = {**plain_config(trained.cfg), "model": plain_config(options)}
    return checkpoint_of(trained.state, cfg, model)


def check_kept(trained: Trained, kept: Kept) -> None:
    """Refuse a choice that the model does not have.

    Raises:
        UserError: not as many layers as it has, no head at all, one twice, or one too many.
    """
    for site, counts in trained.heads.items():
        layers = kept[site]
        if len(layers) != len(counts):
            raise UserError(
                f"{site} attention: heads are given for {len(layers)} layers, but it has "
                f"{len(counts)}",
                where=trained.path,
            )
        for layer, (heads, count) in enumerate(zip(layers, counts, strict=True)):
            place = f"{site} attention, layer {layer}"
            if not heads:
                raise UserError(f"{place}: no head would be left", where=trained.path)
            if len(set(heads)) < len(heads):
                raise UserError(f"{place}: a head is given twice", where=trained.path)
            if min(heads) < 0 or max(heads) >= count:
                raise UserError(
                    f"{place}: there is no head {max(heads) if min(heads) >= 0 else min(heads)}; "
                    f"it has heads 0 to {count - 1}",
                    where=trained.path,
                )


def keep_heads(trained: Trained, weights: Mapping[str, Tensor], kept: Kept) -> dict[str, Tensor]:
    """``weights`` with the rows and columns of the ``kept`` heads only, in their old order."""
    result = dict(weights)
    for site, layers in trained.attentions.items():
        for heads, (name, attention) in zip(kept[site], layers.items(), strict=True):
            # sized_options scales scores by the heads' own size, whatever the model did.
            size = attention.q_proj.out_features // attention.num_heads
            scale = attention.scaling / size**-0.5
            for projection, factor in (("q_proj", scale), ("k_proj", 1.0), ("v_proj", 1.0)):
                for kind in ("weight", "bias"):
                    full = f"{name}.{projection}.{kind}"
                    if full in result:  # ours may have no biases
                        result[full] = factor * rows(result[full], attention.num_heads, heads)
            full = f"{name}.out_proj.weight"
            result[full] = rows(result[full].T, attention.num_heads, heads).T.contiguous()
    return result


def rows(weight: Tensor, num_heads: int, heads: Sequence[int]) -> Tensor:
    """The blocks of rows that belong to ``heads``: ``(H h, ...) -> (len(heads) h, ...)``."""
    blocks = weight.unflatten(0, (num_heads, -1))  # (H, h, ...)
    return blocks[sorted(heads)].flatten(0, 1)


def keep_units(trained: Trained, weights: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """``weights`` with the ``count`` units of each feed-forward layer that weigh most.

    A unit weighs the product of the lengths of its row of ``fc1`` and its column of ``fc2``.

    Raises:
        UserError: a layer has fewer units.
    """
    result = dict(weights)
    for name in [name for name in weights if name.endswith(".fc1.weight")]:
        layer = name.removesuffix(".fc1.weight")
        first, second = weights[name], weights[f"{layer}.fc2.weight"]  # (ff, d), (d, ff)
        if count > len(first):
            raise UserError(
                f"{layer} has {len(first)} feed-forward units, not {count}",
                where=trained.path,
                todo="give a smaller --ffn-dim",
            )
        importance = first.norm(dim=1) * second.norm(dim=0)
        units = importance.topk(count).indices.sort().values
        for full, axis in ((name, 0), (f"{layer}.fc1.bias", 0), (f"{layer}.fc2.weight", 1)):
            result[full] = weights[full].index_select(axis, units)
    return result
