"""The loss of each predicted token: cross-entropy without label smoothing, teacher-forced."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.trained.arguments import check_model, sentences_of
from collab_lab.trained.checkpoint import Trained, in_evaluation
from collab_lab.trained.sentences import IGNORED, samples

logger = logging.getLogger(__name__)


def read_by_decoder(sample: Mapping[str, Any]) -> Tensor:
    """The tokens that a decoder reads in a batch of fairseq's: ``(B, T)``."""
    net_input = sample["net_input"]
    return net_input.get("prev_output_tokens", net_input["src_tokens"])


def predicted(decoder: Any, sample: Mapping[str, Any]) -> Tensor:
    """Mask of a batch's targets that count as predicted tokens: ``(B, T)``.

    Padding does not count.  Nor does the beginning of a block, a target under ``--add-bos-token``,
    which ``fairseq-eval-lm`` also leaves out; nor the first targets that the training left out of
    its loss (``--ignore-prefix-size``): nobody taught the model to predict them.

    Raises:
        UserError: the batch has no targets.
    """
    target = sample["target"]
    if target is None:
        todo = "binarise both sides"
        raise UserError("have no target side to predict", "the sentences", todo)
    mask = target.ne(decoder.padding_idx) & target.ne(decoder.dictionary.bos())
    mask[:, : sample.get(IGNORED, 0)] = False
    return mask


def cross_entropy(model: Any, sample: Mapping[str, Any]) -> Tensor:
    """The loss of each target token in nats ``(B, T)``; 0 where no token is predicted."""
    decoder, is_predicted = model.decoder, predicted(model.decoder, sample)
    target = sample["target"].masked_fill(~is_predicted, decoder.padding_idx)
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


def summed_loss(
    model: Any, sample: Mapping[str, Any], generator: torch.Generator | None = None
) -> Tensor:
    """The loss in nats, summed over target tokens, for gradients.

    Args:
        generator: draws the labels from the model, in place of the targets.  Second moments of the
            gradient are then the Fisher information of the model's distribution.
    """
    if generator is not None:
        return sampled_loss(model, sample, generator)[0]
    output, target = model(**sample["net_input"]), sample["target"]
    is_target = predicted(model.decoder, sample)
    return _summed(model, output, is_target, target[is_target])


def sampled_loss(
    model: Any, sample: Mapping[str, Any], generator: torch.Generator
) -> tuple[Tensor, float]:
    """:func:`summed_loss` of labels that are drawn, and that of the targets, as a number."""
    output, target = model(**sample["net_input"]), sample["target"]
    is_target = predicted(model.decoder, sample)
    with torch.no_grad():
        probabilities = model.get_normalized_probs(output, log_probs=False)[is_target]
        labels = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
        if getattr(model.decoder, "adaptive_softmax", None) is None:
            nats = functional.cross_entropy(
                output[0][is_target].float(), target[is_target], reduction="none"
            )
        else:
            nats = -probabilities.gather(1, target[is_target].unsqueeze(1)).log()
    return _summed(model, output, is_target, labels), float(nats.double().sum())


def _summed(model: Any, output: Any, is_target: Tensor, labels: Tensor) -> Tensor:
    """The loss of labels ``(N)`` of the words in a mask ``(B, T)``, in nats."""
    adaptive = getattr(model.decoder, "adaptive_softmax", None)
    if adaptive is None:
        check_logits(model, output, is_target)
        return functional.cross_entropy(output[0][is_target], labels, reduction="sum")
    # get_normalized_probs changes in place what its gradient needs.
    logits, targets = adaptive(output[0][is_target].unsqueeze(0), labels.unsqueeze(0))
    pairs = zip(logits, targets, strict=True)
    losses = [
        functional.cross_entropy(*pair, reduction="sum") for pair in pairs if pair[1] is not None
    ]
    return torch.stack(losses).sum()


@torch.no_grad()
def check_logits(model: Any, output: Any, is_target: Tensor) -> None:
    """Raise UserError for a model whose output is not made of logits, looking at a few words.

    A pointer-generator or a fusion of models returns probabilities: gradients by way of logits are
    not those of its loss, and what it reads of attention weights no price knows.
    """
    some = is_target & (is_target.flatten().cumsum(0).view_as(is_target) <= 4)
    logits = output[0][some].unsqueeze(0)
    found = model.get_normalized_probs((logits, *output[1:]), log_probs=True)
    if not torch.allclose(found.float(), logits.float().log_softmax(-1), atol=1e-3, rtol=1e-3):
        problem = f"a {type(model).__name__} predicts words by other means than a softmax of logits"
        raise UserError(f"{problem}: its prices, gradients and heads are not known")


@torch.no_grad()
def sentence_losses(model: Any, samples: Sequence[Mapping[str, Any]]) -> tuple[Tensor, Tensor]:
    """For each sentence, the sum of its loss in nats and its number of tokens: both ``(N,)``."""
    losses, tokens = [], []
    with in_evaluation(model):
        for sample in bar("loss", samples):
            losses.append(cross_entropy(model, sample).double().sum(1).cpu())
            tokens.append(predicted(model.decoder, sample).sum(1).cpu())
    return torch.cat(losses), torch.cat(tokens)


def is_signed(model: Any) -> bool:
    """Whether a model rejects another dictionary by its signature, as models of ours do."""
    return hasattr(model.decoder, "dictionary_signature")


def say_if_guessing(trained: Trained, batches: Sequence[Mapping[str, Any]]) -> None:
    """Log a warning where words are predicted no better than by their frequencies in ``batches``.

    That is so with another dictionary of equal size.  Models of ours have a signature against it.
    """
    model, some = trained.model, batches[:: max(1, len(batches) // 4)]
    if is_signed(model):
        return
    targets = [s["target"][predicted(model.decoder, s)] for s in some]
    counts = torch.cat(targets).bincount().double()
    entropy = float(torch.special.entr(counts / counts.sum()).sum()) / math.log(2)
    bits = mean_bits(model, some)
    if bits >= entropy:
        logger.warning(
            "%s: its loss is that of guessing: %.2f bits per token, %.2f by frequencies of words; "
            "is this data folder, with its dictionaries, that of the training?",
            *(trained.path, bits, entropy),
        )


def say_if_guessing_valid(trained: Trained) -> None:
    """:func:`say_if_guessing` on the validation set of the data folder, where that has both sides.

    A set that cannot be read is a warning, too: what was made of the model is as good without.
    """
    if is_signed(trained.model):
        return
    try:
        batches = samples(trained, "valid", 100)
    except FileNotFoundError:  # a folder of dictionaries
        return
    except UserError as error:
        logger.warning("whether the model fits its data folder was not measured: %s", error)
        return
    if batches[0]["target"] is not None:
        say_if_guessing(trained, batches)


def mean_bits(model: Any, samples: Sequence[Mapping[str, Any]]) -> float:
    """The mean loss in bits per target token that is :func:`predicted`."""
    losses, tokens = sentence_losses(model, samples)
    check_any(int(tokens.sum()))
    return float(losses.sum() / tokens.sum() / math.log(2))


def check_any(number: int) -> None:
    """Raise UserError where no target token is left to be predicted."""
    if not number:
        problem = "leaves out every target token of these sentences"
        raise UserError(problem, "--ignore-prefix-size", "give longer sentences")


def validation_loss(model: Trained, batches: Sequence[Mapping[str, Any]] | None = None) -> float:
    """The loss on the validation set, in bits per target token, without label smoothing.

    Targets that the training left out (``--ignore-prefix-size``) count neither in the sum nor in
    the number of tokens; ``fairseq-validate`` divides the same sum by the number of all targets.

    Args:
        batches: other sentences, as :func:`collab_lab.trained.sentences.samples` returns them.

    Raises:
        UserError: there are no sentences, or no validation set.
    """
    check_model(model)
    # A list: an iterator would be at its end after the first look.
    batches = sentences_of(model, "valid", None) if batches is None else list(batches)
    if not batches:
        raise UserError("hold no sentence", "`batches`")
    return mean_bits(model.model, batches)
