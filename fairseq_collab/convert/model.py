"""A checkpoint with new heads in place of some of its attentions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from fairseq_collab.convert.source import target_arch
from fairseq_collab.convert.target import Target
from fairseq_collab.prune.surgery import options_for, rebuilt, weights_of
from fairseq_collab.trained.attentions import Attention
from fairseq_collab.trained.opener import Trained


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
