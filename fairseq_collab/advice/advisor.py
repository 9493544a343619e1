"""From single places to one answer.

1. Each place alone at each size, by every method: loss on a sample of the validation set.
2. The best predicted combinations (:mod:`.plan`): loss on four times the sample.
3. The best of these: translations of the whole validation set, with paired bootstrap intervals.

The answer meets the wishes and loses least BLEU, if the loss is allowed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collab_common.errors import UserError
from collab_common.progress import bar, say
from fairseq_collab.advice.candidates import SUBSET, Method, methods
from fairseq_collab.advice.measure import Ledger, counts, drawn_gains, mean_loss
from fairseq_collab.advice.plan import (
    MEANS,
    POOL,
    Candidate,
    Measured,
    Predicted,
    Wish,
    best,
    candidate,
    combinations,
    nearest,
    ratios,
)
from fairseq_collab.convert import calibrate
from fairseq_collab.metrics.translate import corpus_bleu, translations
from fairseq_collab.trained.opener import Trained

#: Sentences that the importance of heads is measured on.
IMPORTANCE = 256
#: Sentences per sentence of the first sample, for combinations.
LARGER = 4
#: Candidates that translate the whole validation set.
FINALISTS = 3


@dataclass(frozen=True)
class Final:
    """A candidate on the whole validation set.

    Attributes:
        drop: BLEU lost against the given model; ``low``, ``high``: its 95 % interval.
        ratios: costs as shares of the given model's.
        command: makes the model by hand.
    """

    candidate: Candidate
    bleu: float
    drop: float
    low: float
    high: float
    ratios: dict[str, float]
    command: str


@dataclass
class Advice:
    """The finalists, the best first; ``answer`` is None if none loses little enough.

    Attributes:
        bleu: of the given model.
        rejected: by method, why the model does not allow it.
    """

    wishes: Sequence[Wish]
    max_bleu_loss: float
    subset: str
    bleu: float
    finals: list[Final]
    rejected: Mapping[str, str]

    @property
    def answer(self) -> Final | None:
        return self.finals[0] if self.finals[0].drop <= self.max_bleu_loss else None


class Advisor:
    """Finds a smaller model.

    Args:
        sample: sentences that single places are measured on.

    Raises:
        UserError: the model or the data do not allow it, or no candidate meets the wishes.
    """

    def __init__(self, trained: Trained, ledger: Ledger, subset: str, sample: int):
        self.trained, self.ledger, self.subset, self.sample = trained, ledger, subset, sample
        self.whole = counts(trained.model)
        batches = calibrate.batches(trained, SUBSET, IMPORTANCE)
        self.methods, self.rejected = methods(trained, batches)
        if not self.methods:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.rejected.items())
            raise UserError(f"no method can shrink this model ({reasons})", trained.path)
        self.samples = functools.cache(functools.partial(calibrate.batches, trained, subset))

    def run(self, wishes: Sequence[Wish], max_bleu_loss: float) -> Advice:
        """All stages; where they take more than ten minutes, the estimate is printed first."""
        if (minutes := self.minutes()) > 10:
            say(f"about {minutes:.0f} minutes; rerun the command to resume it")
        found = [one for method in self.methods.values() for one in self.predicted(method)]
        group = best(found, wishes)
        if not group:
            near = nearest(found, wishes)
            costs = " ".join(f"{wish.what}={near.ratios[wish.what]:.2f}" for wish in wishes)
            todo = f"{costs} is the nearest ({near.candidate.name}): ask for less"
            what = f"no candidate has {' '.join(map(str, wishes))}"
            raise UserError(what, self.trained.path, todo)
        number = LARGER * self.sample
        say(f"{len(group)} combinations, on {number} sentences")
        losses = {one: self.loss(one, number) for one in bar("combinations", group)}
        group.sort(key=lambda one: (losses[one], one.name))
        say(f"{FINALISTS} candidates, on all of {self.subset}")
        finals = [self.final(one) for one in group[:FINALISTS]]
        finals.sort(key=lambda one: (one.drop, one.candidate.name))
        bleu = self.bleu(None)
        return Advice(wishes, max_bleu_loss, self.subset, bleu, finals, self.rejected)

    def minutes(self) -> float:
        """Estimate of all measurements, from the times that the given model takes now."""
        start = time.monotonic()
        self.loss(None, self.sample)
        then = time.monotonic()
        self.bleu(None)
        loss, bleu = then - start, time.monotonic() - then
        sizes = [found for method in self.methods.values() for found in method.sizes().values()]
        number = sum(map(len, sizes)) + LARGER * POOL
        return (loss * number + bleu * FINALISTS) / 60

    def predicted(self, method: Method) -> Iterator[Predicted]:
        """Predictions of all combinations of a method, from its places one by one."""
        say(f"{method.name}: {MEANS[method.name]}")
        base = Measured({}, 0.0, self.whole)
        if method.base:
            start = candidate(method.name, method.base)
            base = Measured(method.base, **self.alone(start, self.sample))
        alone = [(place, size) for place, sizes in method.sizes().items() for size in sizes]
        singles = []
        for place, size in bar(method.name, alone):
            one = candidate(method.name, {**method.base, place: size})
            singles.append(Measured({place: size}, **self.alone(one, self.sample)))
        return combinations(method.name, base, singles, self.whole)

    def final(self, one: Candidate) -> Final:
        """A candidate on the whole validation set."""
        bleu = self.bleu(one)
        low, high = np.percentile(self.drops(one), [2.5, 97.5]).tolist()
        method = self.methods[one.method]
        command = method.command(one, self.trained.path.name, "DATA", "smaller.pt")
        costs = ratios(counts(self.make(one).model), self.whole)
        return Final(one, bleu, self.bleu(None) - bleu, low, high, costs, command)

    # ---- measures; None is the given model ---------------------------------------------------

    def make(self, one: Candidate | None) -> Trained:
        """The model."""
        return self.trained if one is None else self.methods[one.method].make(one)

    def alone(self, one: Candidate, number: int) -> dict[str, Any]:
        """Loss added, in nats per token on ``number`` sentences, and costs."""

        def found() -> dict[str, Any]:
            model = self.make(one).model
            added = mean_loss(model, self.samples(number)) - self.loss(None, number)
            return {"loss": added, "counts": counts(model)}

        return self.ledger.get(f"alone {one.name}", found)

    def loss(self, one: Candidate | None, number: int) -> float:
        """Nats per token on ``number`` sentences."""
        return self.ledger.get(
            f"loss {number} {_name(one)}",
            lambda: mean_loss(self.make(one).model, self.samples(number)),
        )

    def bleu(self, one: Candidate | None) -> float:
        """BLEU on all sentences."""
        return corpus_bleu(*self._texts(one))

    def drops(self, one: Candidate) -> NDArray[np.float64]:
        """BLEU lost against the given model, in bootstrap samples of the sentences."""
        (system, references), (baseline, _) = self._texts(one), self._texts(None)
        chance = np.random.default_rng(1)
        return -drawn_gains(baseline, system, references, chance)

    def _texts(self, one: Candidate | None) -> list[list[str]]:
        """Translations and references of all sentences."""

        def found() -> list[list[str]]:
            made = self.make(one)
            return [*translations(made.model, made.task, self.subset)]

        return self.ledger.get(f"translations {_name(one)}", found)


def _name(one: Candidate | None) -> str:
    return one.name if one else "whole"
