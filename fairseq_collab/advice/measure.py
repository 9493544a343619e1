"""Measure candidates: the loss on a sample, and translations of the whole validation set.

All candidates are measured on the same sentences.  A :class:`Ledger` keeps each number in
``advice.json``, so that a rerun of a killed command does not measure it again:

    {"settings": {...}, "found": {"loss 256 collab encoder=32": 1.62, ...}, "finals": [...], ...}

A model that translates is judged by BLEU, a language model by its perplexity per token.
"""

from __future__ import annotations

import copy
import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from collab_common.errors import UserError
from collab_common.files import read_json, write_json
from fairseq_collab.advice.candidates import Candidate, Method
from fairseq_collab.advice.wishes import counts
from fairseq_collab.analysis.importance import cross_entropy, predicted
from fairseq_collab.bench.timing import in_turn
from fairseq_collab.bench.translate import Translator
from fairseq_collab.convert.calibrate import batches
from fairseq_collab.metrics.significance import SAMPLES, drawn_gains
from fairseq_collab.metrics.translate import corpus_bleu, translations
from fairseq_collab.trained.opener import Trained, spread, to_device

T = TypeVar("T")
#: Speed is measured on so many sentences, in batches of so many, for so many turns.
TIMED_SENTENCES, TIMED_BATCH, TURNS = 128, 64, 6


class Ledger:
    """Numbers by name, on the disk as soon as they are known.

    Args:
        settings: what all numbers depend on.

    Raises:
        UserError: the file is damaged, or has numbers of other settings.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path, self.settings = path, settings
        self.found: dict[str, Any] = {}
        if path.exists():
            todo = "give another --out"
            content = read_json(path, todo)
            if not isinstance(content, dict) or content.get("settings") != settings:
                what = "has numbers of another model, data folder, --subset, --sample or --seed"
                raise UserError(what, path, todo)
            self.found = content["found"]

    def get(self, name: str, measure: Callable[[], T]) -> T:
        """The number of this name: ``measure()`` if it is not there yet."""
        if name not in self.found:
            self.found[name] = measure()
            self.write()
        return self.found[name]

    def write(self, **more: Any) -> None:
        """Replace the file in one step, with ``more`` content."""
        write_json(self.path, {"settings": self.settings, **more, "found": self.found})


class Judge:
    """Measures candidates; None stands for the given model.

    Args:
        methods: by name.
        subset: the validation set.
    """

    def __init__(
        self,
        trained: Trained,
        methods: Mapping[str, Method],
        ledger: Ledger,
        subset: str,
        seed: int,
    ):
        self.trained, self.methods, self.ledger = trained, methods, ledger
        self.subset, self.seed = subset, seed
        self.samples = functools.cache(functools.partial(batches, trained, subset))

    def make(self, one: Candidate | None) -> Trained:
        """The model."""
        return self.trained if one is None else self.methods[one.method].make(one)

    def alone(self, one: Candidate, number: int) -> dict[str, Any]:
        """Loss added, in nats per token on ``number`` sentences, and costs."""

        def found() -> dict[str, Any]:
            model = self.make(one).model
            nats = loss(model, self.samples(number)).mean
            return {"loss": nats - self.loss(None, number), "counts": counts(model)}

        return self.ledger.get(f"alone {one.name}", found)

    def loss(self, one: Candidate | None, number: int) -> float:
        """Nats per token on ``number`` sentences."""
        return self.ledger.get(
            f"loss {number} {_name(one)}",
            lambda: loss(self.make(one).model, self.samples(number)).mean,
        )

    def quality(self, one: Candidate | None) -> float:
        """On all sentences: BLEU, or perplexity of a language model."""
        if self.trained.is_language_model:
            return math.exp(self._losses(one).mean)
        return corpus_bleu(*self._texts(one))

    def drops(self, one: Candidate) -> np.ndarray:
        """How much worse the quality is than the given model's, in bootstrap samples."""
        chance = np.random.default_rng(self.seed)
        if self.trained.is_language_model:
            return perplexity_drops(self._losses(None), self._losses(one), chance)
        (system, references), (baseline, _) = self._texts(one), self._texts(None)
        return -drawn_gains(baseline, system, references, chance)

    def speeds(self, group: Sequence[Candidate]) -> dict[str, float]:
        """Sentences per second as multiples of the given model's, by name of the candidate.

        Empty of language models: translations are timed.
        """
        if self.trained.is_language_model:
            return {}

        def found() -> dict[str, float]:
            models = [self.trained, *map(self.make, group)]
            return dict(zip(names, speeds(models, self.subset)[1:], strict=True))

        names = [one.name for one in group]
        return self.ledger.get(f"speed {', '.join(names)}", found)

    def _texts(self, one: Candidate | None) -> list[list[str]]:
        """Translations and references of all sentences."""

        def found() -> list[list[str]]:
            made = self.make(one)
            return [*translations(made.model, made.task, self.subset)]

        return self.ledger.get(f"translations {_name(one)}", found)

    def _losses(self, one: Candidate | None) -> Loss:
        def found() -> list[list[float]]:
            every = self.samples(sys.maxsize)
            return [part.tolist() for part in loss(self.make(one).model, every)]

        return Loss(*map(np.array, self.ledger.get(f"losses {_name(one)}", found)))


def _name(one: Candidate | None) -> str:
    return one.name if one else "whole"


class Loss(NamedTuple):
    """The loss of each sentence in nats, and its number of tokens."""

    nats: np.ndarray
    tokens: np.ndarray

    @property
    def mean(self) -> float:
        """Nats per token."""
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
    """Sentences per second as multiples of the first model's: medians over turns."""
    task, device = models[0].task, models[0].device
    dataset, chosen = spread(models[0], subset, TIMED_SENTENCES)
    chosen.sort(key=lambda index: int(dataset.num_tokens(index)))
    parts = [chosen[i : i + TIMED_BATCH] for i in range(0, len(chosen), TIMED_BATCH)]
    items = [to_device(dataset.collater([dataset[i] for i in part]), device) for part in parts]
    # A copy, as a translator changes its model.
    programs = {str(i): Translator(copy.deepcopy(one.model), task) for i, one in enumerate(models)}
    for program in programs.values():
        program(items[0])  # warm-up
    times = np.array([*in_turn(programs, items, TURNS, pause=0).values()])  # (models, turns)
    return [float(ratio) for ratio in np.median(times[0] / times, axis=1)]
