"""Importance of heads by gradients (Michel, Levy, Neubig 2019, arXiv 1905.10650, section 4.1).

    I_h = E_x |dL(x) / dxi_h| = E_x |Att_h(x)^T dL(x) / dAtt_h(x)|

``xi_h`` is a factor of the output of head h, which is 1 in the model itself.  ``L(x)`` is the
cross-entropy of a sentence pair, or of a language model's block, summed over its tokens, without
label smoothing.  The expectation is the mean over query positions, as in the paper's released
code.  The model is in evaluation mode, without dropout.

Shapes: ``B`` sentences, ``T`` queries, ``H`` heads, ``h_v`` size of a head's value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from collab_common import AttentionType
from collab_lab.heads.attention_weights import Means, head_outputs, per_head
from collab_lab.metrics.loss import read_by_decoder, summed_loss
from collab_lab.trained.attentions import Attention


def importance(
    model: Any, samples: Iterable[Mapping[str, Any]]
) -> dict[AttentionType, list[list[float]]]:
    """The importance of all heads of a model in eval mode, in nats.

    It is the mean over the query positions of all batches: source positions for the encoder's
    heads, target positions for others.
    """
    means, padding = Means(), model.decoder.padding_idx
    for sample in samples:
        source = sample["net_input"]["src_tokens"].ne(padding).sum()
        target = read_by_decoder(sample).ne(padding).sum()
        for attention, derivative in mask_derivatives(model, sample).items():  # (T, B, H)
            count = source if attention.type == "encoder" else target
            means.add(attention.type, attention.layer, derivative.abs().sum((0, 1)), count)
    return means.result()


def mask_derivatives(model: Any, sample: Mapping[str, Any]) -> dict[Attention, Tensor]:
    """The contribution of each query position to ``dL/dxi_h``: ``(T, B, H)`` for each attention.

    It is 0 at padding, because the loss does not depend on it.
    """
    with torch.enable_grad(), head_outputs(model) as outputs:
        loss = summed_loss(model, sample)
        # Without cross-attention the encoder has no effect: its gradients are 0.
        heads = list(outputs.values())
        gradients = torch.autograd.grad(loss, heads, allow_unused=True, materialize_grads=True)
    return {
        attention: per_head(output.detach() * gradient, attention.module.num_heads).double()
        for (attention, output), gradient in zip(outputs.items(), gradients, strict=True)
    }
