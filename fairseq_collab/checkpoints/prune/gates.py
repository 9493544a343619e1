"""A trained model with gates (Voita et al. 2019, arXiv 1905.09418) becomes one without.

A gate multiplies a head's output, and so does a factor of the head's columns of ``out_proj``: with
the gates in there, the model computes what it did.  A head whose gate is 0 can then go, and its
columns, which are zero, go with it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from collab_common.errors import UserError
from fairseq_collab.attention.gates import GatedAttention, deterministic, gated_attentions
from fairseq_collab.checkpoints.prune.surgery import Kept
from fairseq_collab.checkpoints.prune.trained import Trained, find_attentions
from fairseq_collab.models.layers import Site

#: The gate of each head of each layer, by site.
Gates = Mapping[Site, Sequence[Sequence[float]]]
#: So many gates are named where some are not decided.
_NAMED = 5


def gates_of(trained: Trained) -> Gates:
    """The gates of evaluation; 1 for heads that have none."""
    found: dict[Site, list[list[float]]] = {}
    for site, layers in trained.attentions.items():
        found[site] = [
            deterministic(attention.log_alpha.detach()).tolist()
            if isinstance(attention, GatedAttention)
            else [1.0] * attention.num_heads
            for attention in layers.values()
        ]
    return found


def decided_gates(trained: Trained, rounding: bool) -> Gates:
    """The gates of evaluation, each of them 0 or 1.

    Args:
        rounding: take gates from one half up for 1, and others for 0.

    Raises:
        UserError: the model has no gates; or, without ``rounding``, some are between 0 and 1.
    """
    if not gated_attentions(trained.model):
        raise UserError(
            "its heads have no gates",
            where=trained.path,
            todo="give a transformer_gated_heads, or say otherwise which heads stay",
        )
    gates = gates_of(trained)
    undecided = [
        f"{site} layer {layer} head {head} ({gate:.3g})"
        for site, layers in gates.items()
        for layer, values in enumerate(layers)
        for head, gate in enumerate(values)
        if 0 < gate < 1
    ]
    if undecided and not rounding:
        more = f" and {len(undecided) - _NAMED} more" if len(undecided) > _NAMED else ""
        raise UserError(
            f"gates are neither 0 nor 1: {', '.join(undecided[:_NAMED])}{more}",
            where=trained.path,
            todo="train on, or give --round (the model then computes something else)",
        )
    return {
        site: [[float(gate >= 0.5) for gate in values] for values in layers]
        for site, layers in gates.items()
    }


def open_heads(gates: Gates) -> Kept:
    """The heads whose gates are above 0.

    An attention must have a head.  So one whose gates are all 0 keeps its first, which computes
    nothing: :func:`without_gates` has set its columns of ``out_proj`` to zero.
    """
    return {
        site: [[head for head, gate in enumerate(values) if gate > 0] or [0] for values in layers]
        for site, layers in gates.items()
    }


def without_gates(trained: Trained, gates: Gates) -> Trained:
    """A copy of the model whose heads are multiplied by ``gates`` for ever, and have no others.

    A model without gates stays as it is.
    """
    if not gated_attentions(trained.model):
        return trained
    model = copy.deepcopy(trained.model)
    for site, layers in trained.attentions.items():
        for (name, attention), values in zip(layers.items(), gates[site], strict=True):
            if isinstance(attention, GatedAttention):
                layer, _, attribute = name.rpartition(".")
                plain = attention.ungated(torch.tensor(values))
                setattr(model.get_submodule(layer), attribute, plain)
    return replace(trained, model=model, attentions=find_attentions(model, trained.path))
