"""How much the loss depends on a head: by gradients, and by leaving it out.

Importance by gradients (Michel, Levy, Neubig 2019, arXiv 1905.10650, section 4.1):

    I_h = E_x |dL(x) / dxi_h| = E_x |Att_h(x)^T dL(x) / dAtt_h(x)|

``xi_h`` is a factor of the output of head h, 1 in the model as it is; ``L(x)`` is the
cross-entropy of a sentence pair, summed over its tokens, without label smoothing; of a language
model that of a block of text, its sample.

Two readings of the expectation, of which the released code of the paper has the first:

* per token: ``|.|`` of each query position, over the number of positions;
* per sample, as the formula says: ``|.|`` of a sentence's sum over positions, over the number of
  sentences.

The loss that a head saves is measured, too: how much a target token costs more, in nats, when the
head's output is 0.  What any other measure of heads says of it is a matter of ranks (Spearman).

The model is in evaluation mode: no dropout, as in the released code.

Shapes: ``B`` sentences, ``T`` queries, ``H`` heads, ``h_v`` size of a head's value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from collab_common.progress import bar
from fairseq_collab.analysis.heads.weights import (
    Means,
    ask_for_weights,
    head_outputs,
    per_head,
    read_by_decoder,
)
from fairseq_collab.analysis.scores import hooked
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.trained.attentions import Attention, attentions


class Importance:
    """The importance of all heads, over batches, of a model in eval mode."""

    def __init__(self, model: Any):
        self.model = model
        self._by_token, self._by_sample = Means(), Means()
        for one in attentions(model):  # also of a layer without heads, whose list is empty
            for means in (self._by_token, self._by_sample):
                means.add(one.site, one.layer, torch.zeros(one.module.num_heads), 0)

    def add(self, sample: dict[str, Any]) -> None:
        """Count a batch of fairseq's, on the model's device."""
        padding = self.model.decoder.padding_idx
        tokens = {
            "encoder": sample["net_input"]["src_tokens"].ne(padding).sum(),
            "decoder": read_by_decoder(sample).ne(padding).sum(),
        }
        for attention, derivative in mask_derivatives(self.model, sample).items():  # (T, B, H)
            site, layer, *_ = attention
            by_token, by_sample = derivative.abs().sum((0, 1)), derivative.sum(0).abs().sum(0)
            self._by_token.add(site, layer, by_token, tokens.get(site, tokens["decoder"]))
            self._by_sample.add(site, layer, by_sample, derivative.size(1))

    def per_token(self) -> dict[Site, list[list[float]]]:
        """Mean over query positions, in nats: the source's in the encoder, else the target's."""
        return self._by_token.result()

    def per_sample(self) -> dict[Site, list[list[float]]]:
        """Mean over sentence pairs, in nats."""
        return self._by_sample.result()


def mask_derivatives(model: Any, sample: Mapping[str, Any]) -> dict[Attention, Tensor]:
    """What each query position adds to ``dL/dxi_h``: ``(T, B, H)`` for each attention.

    It is 0 at padding, which no loss depends on.
    """
    with torch.enable_grad(), head_outputs(model) as outputs:
        loss = cross_entropy(model, sample).sum()
        # Without cross-attention the encoder has no effect: its gradients are 0.
        heads = list(outputs.values())
        gradients = torch.autograd.grad(loss, heads, allow_unused=True, materialize_grads=True)
    return {
        attention: per_head(output.detach() * gradient, attention.module.num_heads).double()
        for (attention, output), gradient in zip(outputs.items(), gradients, strict=True)
    }


def cross_entropy(model: Any, sample: Mapping[str, Any]) -> Tensor:
    """The loss of each target token in nats ``(B, T)``; 0 of those that do not count as such."""
    decoder, target = model.decoder, sample["target"]
    target = target.masked_fill(~predicted(decoder, target), decoder.padding_idx)
    output = model(**sample["net_input"])
    if getattr(decoder, "adaptive_softmax", None) is not None:
        return adaptive_cross_entropy(decoder, output[0], target)
    log_probabilities = model.get_normalized_probs(output, log_probs=True, sample=sample)
    loss = functional.nll_loss(
        log_probabilities.flatten(0, 1),  # (B * T, symbols)
        target.flatten(),
        ignore_index=decoder.padding_idx,
        reduction="none",
    )
    return loss.view_as(target)


def predicted(decoder: Any, target: Tensor) -> Tensor:
    """Which targets count as tokens ``(B, T)``: not padding, nor the beginning of a block that
    ``--add-bos-token`` makes one, and that ``fairseq-eval-lm`` leaves out, too."""
    return target.ne(decoder.padding_idx) & target.ne(decoder.dictionary.bos())


def adaptive_cross_entropy(decoder: Any, features: Tensor, target: Tensor) -> Tensor:
    """The loss of each token ``(B, T)`` where words are in clusters: of the cluster, and within it.

    It is 0 of padding.  ``features (B, T, d)`` are what the softmax is made of.
    """
    softmax = decoder.adaptive_softmax
    scores, words = softmax(features, target.flatten())
    loss = functional.cross_entropy(
        scores[0], words[0], ignore_index=decoder.padding_idx, reduction="none"
    )
    _, places = softmax.adapt_target(target)  # of each cluster's words
    # Within a cluster words are counted anew, and none is padding: fairseq's own loss forgets that.
    for these, those, where in zip(scores[1:], words[1:], places, strict=True):
        if those is not None:  # else no word is in this cluster
            within = functional.cross_entropy(these, those, reduction="none")
            loss = loss.index_add(0, where, within)
    return loss.view_as(target)


def loss_increases(model: Any, batches: Sequence[dict[str, Any]]) -> dict[Site, list[list[float]]]:
    """How much the loss of a target token grows without a head, in nats: a pass for each head."""
    tokens = sum(int(predicted(model.decoder, one["target"]).sum()) for one in batches)

    def loss() -> float:
        return sum(float(cross_entropy(model, sample).sum()) for sample in batches) / tokens

    means = Means()
    with torch.inference_mode(), hooked(model, ask_for_weights):
        whole = loss()
        for site, layer, module, _ in bar("heads left out", attentions(model)):
            found = []
            for mask in torch.ones(module.num_heads).diag().logical_not():  # all but one head
                with module.out_proj.register_forward_pre_hook(partial(_masked, mask)):
                    found.append(loss() - whole)
            means.add(site, layer, torch.tensor(found).double(), 1)
    return means.result()


def _masked(mask: Tensor, out_proj: Any, args: tuple[Tensor]) -> tuple[Tensor]:
    """A hook: outputs of heads ``(T, B, H * h_v)`` times ``mask (H)``."""
    heads = args[0].unflatten(2, (len(mask), -1))
    return ((heads * mask.to(heads)[:, None]).flatten(2),)


def rank_correlations(
    measure: Mapping[Site, Any], other: Mapping[Site, Any]
) -> dict[Site, float | None]:
    """Spearman's correlation over all heads of a site; None without two different numbers."""
    found: dict[Site, float | None] = {}
    for site in SITES:
        both = [[x for layer in one.get(site) or () for x in layer] for one in (measure, other)]
        usable = all(len({*values}) > 1 and None not in values for values in both)
        ranks = [_ranks(torch.tensor(values).double()) for values in both] if usable else []
        found[site] = float(torch.corrcoef(torch.stack(ranks))[0, 1]) if ranks else None
    return found


def _ranks(values: Tensor) -> Tensor:
    """The place of each number in their order; equal ones share the mean of theirs."""
    above = (values[:, None] > values).sum(1)
    return above + ((values[:, None] == values).sum(1) - 1) / 2


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
