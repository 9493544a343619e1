"""The loss of each predicted token: cross-entropy without label smoothing, teacher-forced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def read_by_decoder(sample: Mapping[str, Any]) -> Tensor:
    """The tokens that a decoder reads in a batch of fairseq's: ``(B, T)``."""
    net_input = sample["net_input"]
    return net_input.get("prev_output_tokens", net_input["src_tokens"])


def predicted(decoder: Any, target: Tensor) -> Tensor:
    """Mask of the targets that are predicted tokens: ``(B, T)``.

    Padding is none.  Nor is the beginning of a block, a target under ``--add-bos-token``, which
    ``fairseq-eval-lm`` leaves out, too.
    """
    return target.ne(decoder.padding_idx) & target.ne(decoder.dictionary.bos())


def cross_entropy(model: Any, sample: Mapping[str, Any]) -> Tensor:
    """The loss of each target token in nats ``(B, T)``; 0 where no token is predicted."""
    decoder, target = model.decoder, sample["target"]
    target = target.masked_fill(~predicted(decoder, target), decoder.padding_idx)
    output = model(**sample["net_input"])
    # With adaptive softmax, fairseq computes what it needs for these targets alone.
    log_probabilities = model.get_normalized_probs(output, log_probs=True, sample=sample)
    loss = functional.nll_loss(
        log_probabilities.flatten(0, 1),  # (B * T, symbols)
        target.flatten(),
        ignore_index=decoder.padding_idx,
        reduction="none",
    )
    return loss.view_as(target)


def sampled_loss(model: Any, sample: Mapping[str, Any], chance: torch.Generator) -> Tensor:
    """The summed loss in nats of labels drawn from the model, in place of the targets.

    Second moments of its gradient are the Fisher information of the model's own distribution.
    """
    real = predicted(model.decoder, sample["target"])
    output = model(**sample["net_input"])
    log_probabilities = model.get_normalized_probs(output, log_probs=True)[real]  # (N, symbols)
    labels = torch.multinomial(log_probabilities.detach().exp(), 1, generator=chance)
    return -log_probabilities.gather(1, labels).sum()


@torch.inference_mode()
def sentence_losses(model: Any, samples: Sequence[Mapping[str, Any]]) -> tuple[Tensor, Tensor]:
    """For each sentence, the sum of its loss in nats and its number of tokens: both ``(N,)``."""
    losses, tokens = [], []
    for sample in samples:
        losses.append(cross_entropy(model, sample).double().sum(1).cpu())
        tokens.append(predicted(model.decoder, sample["target"]).sum(1).cpu())
    return torch.cat(losses), torch.cat(tokens)


def mean_bits(model: Any, samples: Sequence[Mapping[str, Any]]) -> float:
    """The mean loss in bits per target token."""
    losses, tokens = sentence_losses(model, samples)
    return float(losses.sum() / tokens.sum() / math.log(2))
