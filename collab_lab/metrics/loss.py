"""The loss of each predicted token: cross-entropy without label smoothing, teacher-forced."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch
from fairseq.criterions import CRITERION_REGISTRY
from torch import Tensor
from torch.nn import functional

from collab_common.errors import UserError
from collab_common.progress import bar, say
from collab_lab.trained.checkpoint import Trained, check_model
from collab_lab.trained.contexts import in_evaluation
from collab_lab.trained.sentences import IGNORED, samples, sentences_of

logger = logging.getLogger(__name__)
#: Models of which :func:`say_what_is_measured` has said it.
_SAID = WeakSet[torch.nn.Module]()


def read_by_decoder(sample: Mapping[str, Any]) -> Tensor:
    """The tokens that the decoder reads in a batch of fairseq: ``(B, T)``."""
    net_input = sample["net_input"]
    return net_input.get("prev_output_tokens", net_input["src_tokens"])


def predicted(decoder: Any, sample: Mapping[str, Any]) -> Tensor:
    """Mask of the targets in a batch that count as predicted tokens: ``(B, T)``.

    Three kinds of targets do not count: padding; the beginning of a block under
    ``--add-bos-token``, which ``fairseq-eval-lm`` also leaves out; and the first targets that the
    training left out of its loss (``--ignore-prefix-size``), which the model never learnt.

    Raises:
        UserError: the batch has no targets.
    """
    target = sample["target"]
    if target is None:
        todo = "binarise both sides"
        raise UserError("have no target side", "the sentences", todo)
    mask = target.ne(decoder.padding_idx) & target.ne(decoder.dictionary.bos())
    mask[:, : sample.get(IGNORED, 0)] = False
    return mask


def cross_entropy(model: Any, sample: Mapping[str, Any]) -> Tensor:
    """The loss of each target token in nats, ``(B, T)``; 0 at targets that do not count."""
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
    """The loss in nats, summed over target tokens, as a tensor that has gradients.

    Args:
        generator: draws labels from the model's own distribution to replace the targets.  The
            second moments of the gradients are then the Fisher information.
    """
    if generator is not None:
        return sampled_loss(model, sample, generator)[0]
    output, target = model(**sample["net_input"]), sample["target"]
    is_target = predicted(model.decoder, sample)
    return _summed(model, output, is_target, target[is_target])


def sampled_loss(
    model: Any, sample: Mapping[str, Any], generator: torch.Generator
) -> tuple[Tensor, float]:
    """:func:`summed_loss` of labels drawn from the model, and of the targets (as a float)."""
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
    """Raise UserError if a model's output is not logits, by a look at a few words.

    A pointer-generator or a fusion of models returns probabilities.  Gradients of logits are then
    not those of the loss, and no price considers that the output also reads attention weights.
    """
    some = is_target & (is_target.flatten().cumsum(0).view_as(is_target) <= 4)
    logits = output[0][some].unsqueeze(0)
    found = model.get_normalized_probs((logits, *output[1:]), log_probs=True)
    if not torch.allclose(found.float(), logits.float().log_softmax(-1), atol=1e-3, rtol=1e-3):
        problem = f"a {type(model).__name__} does not predict words by a softmax of logits"
        raise UserError(f"{problem}, so its prices and gradients cannot be computed")


@torch.no_grad()
def sentence_losses(model: Any, samples: Sequence[Mapping[str, Any]]) -> tuple[Tensor, Tensor]:
    """The loss of each sentence in nats, and its number of predicted tokens: both ``(N,)``."""
    losses, tokens = [], []
    with in_evaluation(model):
        for sample in bar("loss", samples):
            losses.append(cross_entropy(model, sample).double().sum(1).cpu())
            tokens.append(predicted(model.decoder, sample).sum(1).cpu())
    return torch.cat(losses), torch.cat(tokens)


def is_signed(model: Any) -> bool:
    """Whether a model has a signature of its dictionary, as our models do, and rejects others."""
    return hasattr(model.decoder, "dictionary_signature")


def say_if_guessing(trained: Trained, batches: Sequence[Mapping[str, Any]]) -> None:
    """Log a warning if the model predicts words no better than their frequencies in ``batches`` do.

    This happens if the data folder has another dictionary of the same size.  Our own models are
    not tested, because their signature already rejects another dictionary.
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
            "%s: the model predicts words no better than chance (%.2f bits per token; always "
            "guessing by word frequency takes %.2f); this is probably not the data folder, with "
            "the dictionaries, that it was trained on",
            *(trained.path, bits, entropy),
        )


def say_if_guessing_valid(trained: Trained) -> None:
    """Call :func:`say_if_guessing` with the validation set, if that has both languages.

    A set that cannot be read is only a warning, because the result does not depend on it.
    """
    if is_signed(trained.model):
        return
    try:
        batches = samples(trained, "valid", 100)
    except FileNotFoundError:  # a folder of dictionaries
        return
    except UserError as error:
        logger.warning("could not check whether the model fits its data folder: %s", error)
        return
    if batches[0]["target"] is not None:
        say_if_guessing(trained, batches)


def say_what_is_measured(trained: Trained) -> None:
    """Say, once of a model, where losses and the validation set are not those of the training.

    A criterion of a plug-in may leave out or weigh targets; a task of a plug-in may give the model
    other batches, such as fairseq's mixture of experts, whose decoder starts with the symbol of an
    expert; and a training may have had further validation sets (``--valid-subset valid,valid1``).
    """
    if trained.model in _SAID:
        return
    _SAID.add(trained.model)
    name = (trained.cfg.get("criterion") or {}).get("_name")
    if is_of_plug_in(CRITERION_REGISTRY.get(name)):
        say(
            f"warning: the training's criterion {name} may leave out or weigh targets: losses here "
            "are the cross-entropy of all of them"
        )
    kind = type(trained.task)
    if any(is_of_plug_in(getattr(kind, step, None)) for step in ("train_step", "valid_step")):
        say(
            f"warning: the training's task, {kind.__name__}, has steps of its own: losses and "
            "prices here are of batches as they are, which may not be what it gave the model"
        )
    dataset = trained.cfg.get("dataset") or {}
    others = str(dataset.get("valid_subset") or "valid").split(",")
    if len(others) > 1 and not dataset.get("combine_valid_subsets"):
        left_out = ", ".join(one for one in others if one != "valid")
        say(f"the validation set is `valid`; {left_out} of the training is left out")


def is_of_plug_in(function: Any) -> bool:
    """Whether a class or a function is neither fairseq's nor this project's."""
    package = getattr(function, "__module__", "fairseq").partition(".")[0]
    return package not in ("fairseq", "fairseq_collab")


def mean_bits(model: Any, samples: Sequence[Mapping[str, Any]]) -> float:
    """The mean loss in bits per :func:`predicted` target token."""
    losses, tokens = sentence_losses(model, samples)
    check_any(int(tokens.sum()))
    return float(losses.sum() / tokens.sum() / math.log(2))


def check_any(number: int) -> None:
    """Raise UserError if ``number``, that of predicted target tokens, is 0."""
    if not number:
        problem = "leaves out every target token of these sentences"
        raise UserError(problem, "--ignore-prefix-size", "give longer sentences")


def validation_loss(model: Trained, batches: Sequence[Mapping[str, Any]] | None = None) -> float:
    """Measure the loss on the validation set, in bits per target token, without label smoothing.

    Targets that the training left out (``--ignore-prefix-size``) do not count, neither in the sum
    nor in the number of tokens; ``fairseq-validate`` divides the same sum by all targets.

    Args:
        batches: other sentences, as :func:`collab_lab.trained.sentences.samples` returns them.

    Raises:
        UserError: there is no validation set, or it has no sentence.
    """
    check_model(model)
    if batches is None:
        say_what_is_measured(model)
    # A list: an iterator would be at its end after the first look.
    batches = sentences_of(model, "valid", None) if batches is None else list(batches)
    if not batches:
        raise UserError("must contain at least one sentence", "`batches`")
    return mean_bits(model.model, batches)
