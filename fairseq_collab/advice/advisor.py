"""From single places to one answer.

1. Each place alone at each size, by every method: loss on a sample of the validation set.
2. The best predicted combinations (:mod:`.plan`): loss on four times the sample.
3. The best of these: translations of the whole validation set, with paired bootstrap intervals.

The answer meets the wishes and loses least BLEU, if the loss is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collab_common.errors import UserError
from collab_common.progress import bar, say
from fairseq_collab.advice.candidates import SUBSET, Method, methods
from fairseq_collab.advice.measure import Judge, Ledger, counts
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
        self.trained, self.subset, self.sample = trained, subset, sample
        self.whole = counts(trained.model)
        batches = calibrate.batches(trained, SUBSET, IMPORTANCE)
        self.methods, self.rejected = methods(trained, batches)
        if not self.methods:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.rejected.items())
            raise UserError(f"no method can shrink this model ({reasons})", trained.path)
        self.judge = Judge(trained, self.methods, ledger, subset)

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
        losses = {one: self.judge.loss(one, number) for one in bar("combinations", group)}
        group.sort(key=lambda one: (losses[one], one.name))
        say(f"{FINALISTS} candidates, on all of {self.subset}")
        finals = [self.final(one) for one in group[:FINALISTS]]
        finals.sort(key=lambda one: (one.drop, one.candidate.name))
        bleu = self.judge.bleu(None)
        return Advice(wishes, max_bleu_loss, self.subset, bleu, finals, self.rejected)

    def minutes(self) -> float:
        """Estimate of all measurements, from the times that the given model takes now."""
        start = time.monotonic()
        self.judge.loss(None, self.sample)
        then = time.monotonic()
        self.judge.bleu(None)
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
            base = Measured(method.base, **self.judge.alone(start, self.sample))
        alone = [(place, size) for place, sizes in method.sizes().items() for size in sizes]
        singles = []
        for place, size in bar(method.name, alone):
            one = candidate(method.name, {**method.base, place: size})
            singles.append(Measured({place: size}, **self.judge.alone(one, self.sample)))
        return combinations(method.name, base, singles, self.whole)

    def final(self, one: Candidate) -> Final:
        """A candidate on the whole validation set."""
        bleu = self.judge.bleu(one)
        low, high = np.percentile(self.judge.drops(one), [2.5, 97.5]).tolist()
        method = self.methods[one.method]
        command = method.command(one, self.trained.path.name, "DATA", "smaller.pt")
        costs = ratios(counts(self.judge.make(one).model), self.whole)
        return Final(one, bleu, self.judge.bleu(None) - bleu, low, high, costs, command)
