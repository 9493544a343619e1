"""How good candidates are: the loss of a sample first, which is cheap; translations for the few.

All candidates of a model are measured on the same sentences, evenly spread over the validation set,
each number once: :mod:`.ledger` keeps it.  A model that translates is judged by BLEU; a language
model by its perplexity, of a token, not of a word.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from collab_common.files import make_folder
from fairseq_collab.advice.candidates import SUBSET, Candidate, Way
from fairseq_collab.advice.ledger import Ledger
from fairseq_collab.advice.wishes import counts
from fairseq_collab.analysis.importance import cross_entropy, predicted
from fairseq_collab.bench.timing import in_turn
from fairseq_collab.bench.translate import Translator
from fairseq_collab.convert.calibrate import batches, sentences
from fairseq_collab.convert.distil import distil
from fairseq_collab.metrics.significance import SAMPLES, drawn_gains
from fairseq_collab.metrics.translate import corpus_bleu, translations
from fairseq_collab.trained import opener
from fairseq_collab.trained.opener import Trained, spread, to_device

#: Sentences that an update of tuning learns from.
TUNED_SENTENCES = 128
#: Decoding is timed on so many sentences, in batches of so many, for at least so many turns.
TIMED_SENTENCES, TIMED_BATCH, TURNS = 128, 64, 6


class Judge:
    """Measures candidates; None stands for the given model.

    Args:
        ways: that make the candidates, by name.
        folder: of tuned models.
        subset: the validation set.
    """

    def __init__(
        self,
        trained: Trained,
        ways: Mapping[str, Way],
        ledger: Ledger,
        folder: Path,
        subset: str,
        seed: int,
    ):
        self.trained, self.ways, self.ledger = trained, ways, ledger
        self.folder, self.subset, self.seed = folder, subset, seed
        self.samples = functools.cache(functools.partial(batches, trained, subset))

    def make(self, one: Candidate | None) -> Trained:
        """The model; tuned, once it has been."""
        if one is None:
            return self.trained
        path = self._tuned(one)
        if path.exists():
            tuned = opener.load(path, Path(self.trained.cfg.task.data))
            return tuned.with_model(tuned.model.to(self.trained.device))
        return self.ways[one.way].make(one)

    def alone(self, one: Candidate, number: int) -> dict[str, Any]:
        """Loss added, in nats a token on ``number`` sentences, and costs."""

        def found() -> dict[str, Any]:
            model = self.make(one).model
            nats = loss(model, self.samples(number)).mean
            return {"loss": nats - self.loss(None, number), "counts": counts(model)}

        return self.ledger.get(f"alone {one.name}", found)

    def loss(self, one: Candidate | None, number: int) -> float:
        """Nats a token on ``number`` sentences."""
        return self.ledger.get(
            f"loss {number} {_name(one)}",
            lambda: loss(self.make(one).model, self.samples(number)).mean,
        )

    def bleu(self, one: Candidate | None, number: int | None) -> float:
        """On ``number`` sentences, or all."""
        return corpus_bleu(*self.texts(one, number))

    def texts(self, one: Candidate | None, number: int | None) -> list[list[str]]:
        """Translations and references of ``number`` sentences, or of all."""

        def found() -> list[list[str]]:
            made = self.make(one)
            chosen = None if number is None else spread(made, self.subset, number)[1]
            return [*translations(made.model, made.task, self.subset, chosen)]

        return self.ledger.get(f"translations {number or 'all'} {_name(one)}", found)

    def quality(self, one: Candidate | None) -> float:
        """On all sentences: BLEU, or perplexity of a language model."""
        if self.trained.is_language_model:
            return math.exp(self._losses(one).mean)
        return self.bleu(one, None)

    def compared(self, one: Candidate) -> tuple[float, float, np.ndarray]:
        """Quality on all sentences, how much worse it is, and that in bootstrap samples."""
        quality, whole = self.quality(one), self.quality(None)
        chance = np.random.default_rng(self.seed)
        if self.trained.is_language_model:
            drops = perplexity_drops(self._losses(None), self._losses(one), chance)
            return quality, quality - whole, drops
        (system, references), (baseline, _) = self.texts(one, None), self.texts(None, None)
        return quality, whole - quality, -drawn_gains(baseline, system, references, chance)

    def speeds(self, group: Sequence[Candidate]) -> dict[str, float]:
        """Sentences a second as multiples of the given model's, by name.

        None of language models: translations are timed.
        """
        if self.trained.is_language_model:
            return {}
        missing = [one for one in group if self._speed(one) not in self.ledger.found]
        if missing:
            models = [self.trained, *map(self.make, missing)]
            copies = [one.with_model(copy.deepcopy(one.model)) for one in models]
            found = speeds(copies, self.subset)[1:]
            for one, speed in zip(missing, found, strict=True):
                self.ledger.get(self._speed(one), functools.partial(float, speed))
        return {one.name: self.ledger.found[self._speed(one)] for one in group}

    def _speed(self, one: Candidate) -> str:
        """The ledger's name of a speed: another device has another."""
        device = next(self.trained.model.parameters()).device.type
        return f"speed {one.name}" + f" ({device})" * (device != "cpu")

    def tune(self, group: Sequence[Candidate], updates: int) -> None:
        """Let candidates learn from the given model; each is kept in a file."""
        make_folder(self.folder)
        inputs = sentences(self.trained, SUBSET, TUNED_SENTENCES * updates)
        pad = self.trained.task.target_dictionary.pad()
        for one in group:
            if not self._tuned(one).exists():
                result = self.make(one)
                distil(
                    self.trained.model, result.model, inputs, pad, updates,
                    parameters=[*result.model.parameters()], seed=self.seed,
                )  # fmt: skip
                opener.save(result.with_model(result.model.cpu()), self._tuned(one))

    def _tuned(self, one: Candidate) -> Path:
        return self.folder / f"{one.name.replace(' ', '_')}.pt"

    def _losses(self, one: Candidate | None) -> Loss:
        every = len(self.trained.task.dataset(self.subset))
        found = self.ledger.get(
            f"losses {_name(one)}",
            lambda: [part.tolist() for part in loss(self.make(one).model, self.samples(every))],
        )
        return Loss(*map(np.array, found))


def _name(one: Candidate | None) -> str:
    return one.name if one else "whole"


# ---- measurements --------------------------------------------------------------------------------


class Loss(NamedTuple):
    """Of one model on some sentences: the loss of each, in nats, and its tokens."""

    nats: np.ndarray
    tokens: np.ndarray

    @property
    def mean(self) -> float:
        """Nats a token."""
        return float(self.nats.sum() / self.tokens.sum())


@torch.inference_mode()
def loss(model: Any, samples: Sequence[dict[str, Any]]) -> Loss:
    """The cross-entropy of each sentence, without label smoothing."""
    each = [cross_entropy(model, sample).sum(1) for sample in samples]
    tokens = [predicted(model.decoder, sample["target"]).sum(1) for sample in samples]
    return Loss(torch.cat(each).double().cpu().numpy(), torch.cat(tokens).cpu().numpy())


def perplexity_drops(whole: Loss, found: Loss, chance: np.random.Generator) -> np.ndarray:
    """How much larger the perplexity is, in bootstrap samples of the sentences."""
    chosen = chance.integers(len(whole.nats), size=(SAMPLES, len(whole.nats)))

    def perplexities(one: Loss) -> np.ndarray:
        return np.exp(one.nats[chosen].sum(1) / one.tokens[chosen].sum(1))

    return perplexities(found) - perplexities(whole)


def speeds(models: Sequence[Trained], subset: str) -> list[float]:
    """Sentences a second against the first model's: medians of translations in turn.

    The models are prepared for inference, which changes them: give copies.
    """
    task = models[0].task
    dataset, chosen = spread(models[0], subset, TIMED_SENTENCES)
    chosen.sort(key=lambda index: int(dataset.num_tokens(index)))
    parts = [chosen[i : i + TIMED_BATCH] for i in range(0, len(chosen), TIMED_BATCH)]
    batches = (dataset.collater([dataset[i] for i in part]) for part in parts)
    items = [to_device(batch, models[0].device) for batch in batches]
    programs = {str(i): Translator(one.model, task) for i, one in enumerate(models)}
    for program in programs.values():
        program(items[0])  # warm-up
    times = np.array([*in_turn(programs, items, TURNS, pause=0).values()])  # (models, turns)
    return [float(ratio) for ratio in np.median(times[0] / times, axis=1)]
