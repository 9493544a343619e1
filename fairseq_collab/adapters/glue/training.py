"""Fine-tuning and prediction of a classifier: a plain loop.

As the paper's released code has it (its README and ``run_glue.py``, over transformers' trainer of
2020): AdamW without weight decay, a learning rate that falls in a line to zero, gradients clipped
to norm 1, batches of 32 examples of at most 128 tokens, 3 epochs (10 of SST-2 and RTE).

Shapes: ``N`` examples, ``C`` classes; logits ``(N, C)``, or ``(N, 1)`` where a number is predicted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import bar
from fairseq_collab.adapters.glue.classifier import Classifier
from fairseq_collab.adapters.glue.tasks import Examples

CLIP = 1.0
#: Of an update that is logged.
EVERY = 50


class Diverged(UserError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class Settings:
    """How a classifier is trained.

    Attributes:
        epochs: 0 for none.
        max_length: tokens of an example, both sentences together; what is beyond is cut off.
    """

    epochs: int = 3
    batch_size: int = 32
    lr: float = 2e-5
    max_length: int = 128


@dataclass(frozen=True)
class Training:
    """What a training was: updates, and tokens of examples a second."""

    updates: int
    tokens_per_second: int | None


def check_length(classifier: Classifier, settings: Settings) -> None:
    """Refuse examples that are longer than what the model can read; raises UserError."""
    most = getattr(classifier.model.config, "max_position_embeddings", settings.max_length)
    if settings.max_length > most:
        what = f"the model reads at most {most} tokens, not {settings.max_length}"
        raise UserError(what, where="--max-length")


def inputs(
    classifier: Classifier, examples: Examples, chosen: list[int], max_length: int
) -> dict[str, Tensor]:
    """A batch for the model: tokens padded to the longest of it, and labels."""
    first, *second = zip(*(examples.text[i] for i in chosen), strict=True)
    tokens = classifier.tokenizer(
        list(first), *map(list, second), truncation=True, max_length=max_length, padding=True,
        return_tensors="pt",
    )  # fmt: skip
    device = classifier.model.device
    batch = {name: values.to(device) for name, values in tokens.items()}
    return {**batch, "labels": examples.labels[chosen].to(device)}


def fit(
    classifier: Classifier,
    examples: Examples,
    settings: Settings,
    seed: int,
    log: Callable[[dict[str, Any]], None],
) -> Training:
    """Train a classifier in place.

    Args:
        seed: of dropout and of the order of the examples.
        log: is told of updates now and then.

    Raises:
        Diverged: the loss is no longer a number.
    """
    model = classifier.model.train()
    torch.manual_seed(seed)
    total = settings.epochs * math.ceil(len(examples) / settings.batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.0)
    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 - done / max(total, 1))
    tokens, began = 0, time.perf_counter()
    for update, chosen in enumerate(bar("training", list(batches(len(examples), settings))), 1):
        batch = inputs(classifier, examples, chosen, settings.max_length)
        loss = model(**batch).loss
        if not torch.isfinite(loss):
            raise Diverged(f"the loss is {loss.item()} at update {update}", todo="lower --lr")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        falling.step()
        tokens += int(batch["attention_mask"].sum())
        if update % EVERY == 0 or update == total:
            log({"update": update, "of": total, "loss": round(loss.item(), 4)})
    seconds = time.perf_counter() - began
    return Training(total, round(tokens / seconds) if total else None)


def batches(examples: int, settings: Settings) -> Iterator[list[int]]:
    """Numbers of the examples of each update, in another order each epoch."""
    for _ in range(settings.epochs):
        for chosen in torch.randperm(examples).split(settings.batch_size):
            yield chosen.tolist()


@torch.inference_mode()
def predict(classifier: Classifier, examples: Examples, settings: Settings) -> tuple[Tensor, float]:
    """Predictions ``(N)``, numbers of classes or numbers, and the mean loss of an example."""
    model = classifier.model.eval()
    found, loss = [], 0.0
    for chosen in bar("dev", torch.arange(len(examples)).split(settings.batch_size)):
        output = model(**inputs(classifier, examples, chosen.tolist(), settings.max_length))
        loss += float(output.loss) * len(chosen)
        logits = output.logits.float().cpu()  # (N, C) or (N, 1)
        found.append(logits.argmax(-1) if logits.size(-1) > 1 else logits.squeeze(-1))
    return torch.cat(found), loss / len(examples)
