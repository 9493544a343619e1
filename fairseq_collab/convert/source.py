"""The trained model to convert: opened and checked before anything is computed, rebuilt after.

Accepted are fairseq's own ``transformer`` and ``transformer_lm``; ``transformer_headsize_n`` and
its language model, if values have size ``d/H`` and all layers of a side have equally many heads;
and ``transformer_collab``, whose heads can share fewer dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.convert.base import Target
from fairseq_collab.models.families import HeadTransformer
from fairseq_collab.models.variants import COLLABORATIVE, CONCATENATED, family_of
from fairseq_collab.prune.surgery import options_for, rebuilt, weights_of
from fairseq_collab.trained.attentions import Attention, attentions
from fairseq_collab.trained.opener import Trained, opened, read_checkpoint

#: Weights that conversion changes.
_CHANGED = tuple(f"{name}_proj.weight" for name in ("q", "k", "v", "out"))


def load(path: Path, target: Target, data: Path | None = None) -> Trained:
    """Open a checkpoint; UserError says why it cannot be re-parametrised."""
    state = read_checkpoint(path, data)
    check_weights(state["model"], path)
    trained = opened(path, state)
    check(trained, target)
    return trained


def check(trained: Trained, target: Target) -> None:
    """Refuse a model that has no twin with heads of ``target``, and attentions that have none."""
    target_arch(trained, target)
    first: dict[bool, Attention] = {}  # of the encoder, and of the decoder
    for one in attentions(trained.model):
        check_attention(one, trained.path, target)
        other = first.setdefault(one.site == "encoder", one)
        heads, expected = one.module.num_heads, other.module.num_heads
        if heads != expected:
            what = f"{one} has {heads} heads and {other} has {expected}"
            todo = "models with pruned heads cannot be re-parametrised"
            raise UserError(what, trained.path, todo)


def target_arch(trained: Trained, target: Target) -> str:
    """The architecture with heads of ``target`` that goes with a model."""
    model, path = trained.model, trained.path
    shares_keys = any(isinstance(module, CollaborativeAttention) for module in model.modules())
    if shares_keys and target.variant is not COLLABORATIVE:
        todo = "give a smaller --key-dim, or the model that it was made from"
        raise UserError("its heads are collaborative already", path, todo)
    family = family_of(type(model))
    known = (CONCATENATED, COLLABORATIVE)
    other_heads = isinstance(model, HeadTransformer) and model.variant not in known
    if family is None or other_heads:
        raise UserError(
            f"a {type(model).__name__} is none of the models that can be re-parametrised",
            path,
            "give a transformer, transformer_lm, transformer_headsize_n or, for narrower keys, "
            "transformer_collab",
        )
    return f"{family.prefix}{target.variant.name}"


def check_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """No attention may be pruned, or share weights that change with another."""
    owners: dict[int, str] = {}
    for name, weight in weights.items():
        if name.endswith("q_proj.weight"):
            attention, (rows, columns) = name.removesuffix("q_proj.weight"), weight.shape
            if f"{attention}signature" not in weights and rows != columns:
                what = f"{name} has {rows} of {columns} rows: heads were pruned"
                raise UserError(what, path, "give the model before it was pruned")
        if name.endswith(_CHANGED):
            first = owners.setdefault(weight.data_ptr(), name)
            if first != name:
                what = f"{name} is tied to {first}: heads that share weights would come apart"
                raise UserError(what, path, "untie them first")


def check_attention(one: Attention, path: Path, target: Target) -> None:
    """Concatenated heads, which alone may be resized, must have the sizes of ``target``."""
    module = one.module
    if isinstance(module, ConcatenatedAttention):
        sizes = {"keys": module.qk_head_size, "values": module.v_head_size}
        for part in target.even:
            if sizes[part] * module.num_heads != module.embed_dim:
                found = f"{module.num_heads} heads have {part} of size {sizes[part]}"
                what = f"{one}: {found}; {target.heads} have size {module.embed_dim}/H"
                todo = "heads that were pruned or resized cannot be re-parametrised"
                raise UserError(what, path, todo)


def with_heads(
    trained: Trained,
    target: Target,
    weights: Mapping[Attention, dict[str, Tensor]],
    sizes: Mapping[Attention, int],
) -> Trained:
    """The checkpoint with heads of ``target`` in place of the attentions in ``weights``.

    All others keep the heads that they have.

    Args:
        weights: state dicts of the new attentions, without signatures.
        sizes: of these attentions.
    """
    gone = tuple(f"{place.name}." for place in weights)
    state = {name: it for name, it in weights_of(trained).items() if not name.startswith(gone)}
    for place, own in weights.items():
        state |= {f"{place.name}.{name}": weight for name, weight in own.items()}
    # The options of the source's own attention; fairseq has none of these.
    not_kept = {option.name for option in fields(target.variant.options)} - {*target.inherited}
    arch, shape = target_arch(trained, target), shape_options(trained, target, sizes)
    return rebuilt(trained, options_for(trained, arch, shape, not_kept), state)


def shape_options(
    trained: Trained, target: Target, sizes: Mapping[Attention, int]
) -> dict[str, Any]:
    """Layers, heads, and what ``target`` asks for: sizes, scale, bias."""
    options = dict(target.options)
    found, common = trained.attentions, set(sizes.values())
    everywhere = len(common) == 1 and len(sizes) == sum(map(len, found.values()))
    if everywhere:
        options[target.size] = common.pop()
    for site, places in found.items():
        if not places:
            continue
        if not everywhere:
            each = [sizes.get(place, target.kept(place.module)) for place in places]
            options[f"{target.size}_in_{site}"] = ",".join(map(str, each))
        side = "encoder" if site == "encoder" else "decoder"
        options[f"{side}_attention_heads"] = places[0].module.num_heads
        # The loaded model has the layers that were kept, and no others.
        options |= {f"{side}_layers": len(places), f"{side}_layers_to_keep": None}
    return options
