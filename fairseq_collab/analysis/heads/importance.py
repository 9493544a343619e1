"""Importance of heads by gradients (Michel, Levy, Neubig 2019, arXiv 1905.10650, section 4.1).

    I_h = E_x |dL(x) / dxi_h| = E_x |Att_h(x)^T dL(x) / dAtt_h(x)|

``xi_h`` is a factor of the output of head h, 1 in the model as it is; ``L(x)`` is the
cross-entropy of a sentence pair, summed over its tokens, without label smoothing.

Two readings of the expectation, of which the released code of the paper has the first:

* per token: ``|.|`` of each query position, over the number of positions;
* per sample, as the formula says: ``|.|`` of a sentence's sum over positions, over the number of
  sentences.

The model is in evaluation mode: no dropout, as in the released code.

Shapes: ``B`` sentences, ``T`` queries, ``H`` heads, ``h_v`` size of a head's value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fairseq_collab.analysis.heads.weights import by_site, head_outputs, per_head, trained_alone
from fairseq_collab.checkpoints.attentions import Attention
from fairseq_collab.models.layers import Site


class Importance:
    """Adds up the importance of all heads over batches.

    Args:
        model: an encoder-decoder transformer in eval mode.
    """

    def __init__(self, model: Any):
        self.model = model
        self.sums: dict[Attention, Tensor] = {}  # (2, H): by token, by sample
        self.source_tokens = self.target_tokens = self.sentences = 0

    def add(self, sample: dict[str, Any]) -> None:
        """Count a batch of fairseq's, on the model's device."""
        derivatives = mask_derivatives(self.model, sample)
        for attention, derivative in derivatives.items():  # (T, B, H)
            derivative = derivative.double()
            both = derivative.abs().sum((0, 1)), derivative.sum(0).abs().sum(0)  # (H,) each
            self.sums[attention] = self.sums.get(attention, 0) + torch.stack(both).cpu()
        net_input, padding = sample["net_input"], self.model.encoder.padding_idx
        self.source_tokens += int(net_input["src_tokens"].ne(padding).sum())
        self.target_tokens += int(net_input["prev_output_tokens"].ne(padding).sum())
        self.sentences += len(net_input["src_tokens"])

    def per_token(self) -> dict[Site, list[list[float]]]:
        """Mean over query positions, in nats: the source's in the encoder, else the target's."""
        tokens = {"encoder": self.source_tokens}
        return by_site(
            {
                found: sums[0] / tokens.get(found.site, self.target_tokens)
                for found, sums in self.sums.items()
            }
        )

    def per_sample(self) -> dict[Site, list[list[float]]]:
        """Mean over sentence pairs, in nats."""
        return by_site({found: sums[1] / self.sentences for found, sums in self.sums.items()})


def mask_derivatives(model: Any, sample: Mapping[str, Any]) -> dict[Attention, Tensor]:
    """What each query position adds to ``dL/dxi_h``: ``(T, B, H)`` for each attention.

    It is 0 at padding, which no loss depends on.
    """
    with (
        torch.enable_grad(),
        trained_alone(model, lambda name: False),
        head_outputs(model) as outputs,
    ):
        loss = cross_entropy(model, sample)
        # Without cross-attention the encoder has no effect: its gradients are 0.
        heads = list(outputs.values())
        gradients = torch.autograd.grad(loss, heads, allow_unused=True, materialize_grads=True)
    return {
        attention: per_head(output.detach() * gradient, attention.module.num_heads)
        for (attention, output), gradient in zip(outputs.items(), gradients, strict=True)
    }


def cross_entropy(model: Any, sample: Mapping[str, Any]) -> Tensor:
    """The loss of a batch in nats, summed over the tokens of its targets."""
    output = model(**sample["net_input"])
    log_probabilities = model.get_normalized_probs(output, log_probs=True, sample=sample)
    return functional.nll_loss(
        log_probabilities.flatten(0, 1),  # (B * T, symbols)
        sample["target"].flatten(),
        ignore_index=model.decoder.padding_idx,
        reduction="sum",
    )


def normalised(
    importance: Mapping[Site, Sequence[Sequence[float]]],
) -> dict[Site, list[list[float]]]:
    """Importance with length 1 (l2) in each layer, as heads of several layers are compared.

    A layer of zeros stays one.
    """
    return {
        site: [[value / (math.hypot(*layer) or 1.0) for value in layer] for layer in layers]
        for site, layers in importance.items()
    }
