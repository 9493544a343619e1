"""How good a candidate is: the loss of a sample first, which is cheap; translations for the few.

All candidates are measured on the same sentences, evenly spread over the validation set.  A model
that translates is judged by BLEU; a language model by its perplexity, of a token, not of a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from fairseq_collab.analysis.heads.importance import cross_entropy, predicted
from fairseq_collab.bench.generate import Case, Translator
from fairseq_collab.bench.timing import in_turn
from fairseq_collab.checkpoints.opener import Trained, spread
from fairseq_collab.metrics.model_bleu import BEAM, translations
from fairseq_collab.metrics.seeds import SAMPLES

#: Decoding is timed on so many sentences, in batches of so many, for at least so many turns.
TIMED_SENTENCES, TIMED_BATCH, TURNS = 128, 64, 6


class Loss(NamedTuple):
    """Of one model on some sentences: the loss of each, in nats, and its tokens."""

    nats: np.ndarray
    tokens: np.ndarray

    @property
    def mean(self) -> float:
        """Nats a token."""
        return float(self.nats.sum() / self.tokens.sum())

    def lists(self) -> list[list[float]]:
        """For JSON."""
        return [self.nats.tolist(), self.tokens.tolist()]


@torch.inference_mode()
def loss(model: Any, samples: Sequence[dict[str, Any]]) -> Loss:
    """The cross-entropy of each sentence, without label smoothing."""
    each = [cross_entropy(model, sample, by_sentence=True) for sample in samples]
    tokens = [predicted(model.decoder, sample["target"]).sum(1) for sample in samples]
    return Loss(torch.cat(each).double().numpy(), torch.cat(tokens).numpy())


def perplexity_drops(whole: Loss, found: Loss, chance: np.random.Generator) -> np.ndarray:
    """How much larger the perplexity is, in bootstrap samples of the sentences."""
    chosen = chance.integers(len(whole.nats), size=(SAMPLES, len(whole.nats)))

    def perplexities(one: Loss) -> np.ndarray:
        return np.exp(one.nats[chosen].sum(1) / one.tokens[chosen].sum(1))

    return perplexities(found) - perplexities(whole)


def translated(
    trained: Trained, subset: str, number: int | None = None
) -> tuple[list[str], list[str]]:
    """Translations and references of ``number`` sentences, of all of a subset if it is None."""
    chosen = None if number is None else spread(trained, subset, number)[1]
    return translations(trained.model, trained.task, subset, chosen)


def speeds(models: Sequence[Trained], subset: str) -> list[float]:
    """Sentences a second against the first model's: medians of translations in turn.

    The models are prepared for inference, which changes them: give copies.
    """
    settings: Any = SimpleNamespace(placed=lambda model: model)
    case = Case(BEAM, TIMED_BATCH, TIMED_SENTENCES, None, (0.0, TURNS))
    task = models[0].task
    dataset, chosen = spread(models[0], subset, TIMED_SENTENCES)
    chosen.sort(key=lambda index: int(dataset.num_tokens(index)))
    parts = [chosen[i : i + TIMED_BATCH] for i in range(0, len(chosen), TIMED_BATCH)]
    items = [dataset.collater([dataset[i] for i in part]) for part in parts]
    programs = [Translator(one.model, task, case, settings) for one in models]
    for program in programs:
        program(items[0])  # warm-up
    times = np.array([*in_turn(programs, items, case.budget)])  # (turns, models)
    return [float(ratio) for ratio in np.median(times[:, :1] / times, axis=0)]
