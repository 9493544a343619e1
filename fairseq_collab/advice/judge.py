"""What is measured of the candidates of one model, each number once: :mod:`.ledger` keeps it."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collab_common.files import make_folder
from fairseq_collab.advice import measure
from fairseq_collab.advice.candidates import SUBSET, Candidate, Way
from fairseq_collab.advice.ledger import Ledger
from fairseq_collab.advice.wishes import counts
from fairseq_collab.checkpoints import opener
from fairseq_collab.checkpoints.opener import Trained
from fairseq_collab.checkpoints.reparametrize.calibrate import batches, sentences
from fairseq_collab.checkpoints.reparametrize.distil import distil
from fairseq_collab.metrics.model_bleu import corpus_bleu
from fairseq_collab.metrics.seeds import drawn_gains

#: Sentences that an update of tuning learns from.
TUNED_SENTENCES = 128


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
            return opener.load(path, Path(self.trained.cfg.task.data))
        return self.ways[one.way].make(one)

    def alone(self, one: Candidate, number: int) -> dict[str, Any]:
        """Loss added, in nats a token on ``number`` sentences, and costs."""

        def found() -> dict[str, Any]:
            model = self.make(one).model
            loss = measure.loss(model, self.samples(number)).mean
            return {"loss": loss - self.loss(None, number), "counts": counts(model)}

        return self.ledger.get(f"alone {one.name}", found)

    def loss(self, one: Candidate | None, number: int) -> float:
        """Nats a token on ``number`` sentences."""
        return self.ledger.get(
            f"loss {number} {_name(one)}",
            lambda: measure.loss(self.make(one).model, self.samples(number)).mean,
        )

    def bleu(self, one: Candidate | None, number: int | None) -> float:
        """On ``number`` sentences, or all."""
        return corpus_bleu(*self.texts(one, number))

    def texts(self, one: Candidate | None, number: int | None) -> list[list[str]]:
        """Translations and references of ``number`` sentences, or of all."""
        return self.ledger.get(
            f"translations {number or 'all'} {_name(one)}",
            lambda: [*measure.translated(self.make(one), self.subset, number)],
        )

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
            drops = measure.perplexity_drops(self._losses(None), self._losses(one), chance)
            return quality, quality - whole, drops
        (system, references), (baseline, _) = self.texts(one, None), self.texts(None, None)
        return quality, whole - quality, -drawn_gains(baseline, system, references, chance)

    def speeds(self, group: Sequence[Candidate]) -> dict[str, float]:
        """Sentences a second as multiples of the given model's, by name.

        None of language models: translations are timed.
        """
        if self.trained.is_language_model:
            return {}
        missing = [one for one in group if f"speed {one.name}" not in self.ledger.found]
        if missing:
            models = [self.trained, *map(self.make, missing)]
            copies = [one.with_model(copy.deepcopy(one.model)) for one in models]
            found = measure.speeds(copies, self.subset)[1:]
            for one, speed in zip(missing, found, strict=True):
                self.ledger.get(f"speed {one.name}", functools.partial(float, speed))
        return {one.name: self.ledger.found[f"speed {one.name}"] for one in group}

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
                opener.save(result, self._tuned(one))

    def _tuned(self, one: Candidate) -> Path:
        return self.folder / f"{one.name.replace(' ', '_')}.pt"

    def _losses(self, one: Candidate | None) -> measure.Loss:
        every = len(self.trained.task.dataset(self.subset))
        found = self.ledger.get(
            f"losses {_name(one)}",
            lambda: measure.loss(self.make(one).model, self.samples(every)).lists(),
        )
        return measure.Loss(*map(np.array, found))


def _name(one: Candidate | None) -> str:
    return one.name if one else "whole"
