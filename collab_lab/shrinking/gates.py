"""Gates of heads: which are open, and how to multiply them into the weights.

A gate (Voita et al. 2019, arXiv 1905.09418) multiplies a head's values before they are cached.
Multiplying the head's rows of ``v_proj``, and its bias, by the gate computes the same function,
also with a rounded cache.  A head whose gate is 0 then has values of 0 and can be removed.
"""

from __future__ import annotations

import copy

import torch

from collab_common.errors import UserError
from collab_lab.shrinking.retained import all_heads
from collab_lab.trained.attentions import Retained
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.gates import OPEN, GatedAttention, gated_attentions, rounded


def open_heads(trained: Trained) -> Retained:
    """The heads whose gate is open or that have no gate; a layer may have no head left."""
    if not gated_attentions(trained.model):
        todo = "give a transformer_gated_heads, or another choice of heads"
        raise UserError("its heads have no gates", trained.path, todo)
    retained = all_heads(trained)
    for type_, layers in trained.attentions.items():
        for attention in layers:
            if isinstance(attention.module, GatedAttention):
                [opened] = rounded(attention.module.log_alpha).nonzero(as_tuple=True)
                retained[type_][attention.layer] = opened.tolist()
    return retained


@torch.no_grad()
def without_gates(trained: Trained) -> Trained:
    """The model with its gates multiplied into ``v_proj`` (a copy), or itself without gates."""
    if not gated_attentions(trained.model):
        return trained
    result = trained.with_model(copy.deepcopy(trained.model))
    for attention in gated_attentions(result.model):
        weight, bias = attention.v_proj.weight, attention.v_proj.bias
        gates = rounded(attention.log_alpha).to(weight).repeat_interleave(attention.v_head_size)
        weight.mul_(gates.unsqueeze(1))  # (H h_v, d)
        bias.mul_(gates)  # (H h_v)
        attention.theta.fill_(OPEN / attention.gate_speed)
    return result
