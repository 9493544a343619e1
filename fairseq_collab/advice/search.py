"""From single places to one answer: the stages of an advice.

1. The given model: costs, loss.
2. Each place alone at each size, by every way: loss on a sample of the validation set.
3. The best expected combinations (:mod:`.plan`) as a whole; the worse half goes, and the sample
   doubles for the better one (successive halving, Jamieson and Talwalkar 2016, arXiv 1502.07943).
4. With ``tune``, what is left learns from the given model for so many updates.
5. Translations of a sample, then of the whole validation set, with paired bootstrap intervals and
   speeds in turn.

Sizes of samples depend on the minutes and the model, not on the clock, so that the same command
gives the same answer; where the clock would run out, a stage is cut short, and the advice says so.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from collab_common.errors import UserError
from collab_common.progress import bar, say
from fairseq_collab.advice.candidates import MEANS, SUBSET, Candidate, Way, candidate, ways
from fairseq_collab.advice.judge import Judge
from fairseq_collab.advice.ledger import Ledger
from fairseq_collab.advice.plan import Measured, Predicted, chosen, combinations, nearest
from fairseq_collab.advice.wishes import (
    COUNTED,
    SPEED,
    Advice,
    Final,
    Wanted,
    Wish,
    counts,
    parse,
    ratios,
)
from fairseq_collab.convert import calibrate
from fairseq_collab.metrics.significance import percentiles
from fairseq_collab.trained import opener
from fairseq_collab.trained.opener import Trained

#: Sentences that a loss is measured on at least and at most, at first.
FEWEST, MOST = 64, 1024
#: Of the minutes, what single places may take; from when on samples grow no more.
OF_SINGLES, LATE = 0.5, 0.7
#: Multiply-adds a second that samples are chosen for: taken for granted, not measured.
RATE = 2e10
#: How many go on to translations, and of these to the whole validation set.
TRANSLATED, FINALISTS = 6, 3
#: Sentences that are translated in a sample, per sentence of the first loss.
TRANSLATED_SHARE = 2
#: Sentences that the importance of heads is measured on.
IMPORTANCE = 256


def advise(
    model: Path | str,
    data: Path | str,
    wishes: Sequence[Wish | str] = (),
    device: torch.device | str = "cpu",
    **settings: Any,
) -> Iterator[Final]:
    """The last candidates for a trained model, the answer first if there is one.

    Args:
        model: a checkpoint: it alone knows how smaller ones like it are built.
        data: the data folder.
        device: what everything is measured on.
        wishes: as on the command line: ``["cache=0.5"]``.
        settings: further fields of :class:`Wanted`.

    Raises:
        ValueError: a wish is none.
        UserError: see :class:`Advisor`.
    """
    asked = tuple(parse(one) if isinstance(one, str) else one for one in wishes)
    trained = opener.load(Path(model), Path(data))
    trained.model.to(device)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder), {}, {})
        advice = Advisor(trained, Wanted(asked, **settings), ledger, Path(folder, "tuned")).run()
    yield from sorted(advice.finals, key=lambda one: (one is not advice.answer, one.drop))


class Advisor:
    """Finds what is asked for of one model.

    Args:
        folder: of tuned models.

    Raises:
        UserError: the model or the data do not allow it, or no candidate can have the wishes.
    """

    def __init__(self, trained: Trained, wanted: Wanted, ledger: Ledger, folder: Path):
        self.trained, self.wanted, self.ledger = trained, wanted, ledger
        self.whole = counts(trained.model)
        self.notes: list[str] = []
        self.cut: list[str] = []  # ways that were not tried at all sizes
        self.number = self._sample()
        batches = calibrate.batches(trained, SUBSET, IMPORTANCE)
        self.ways, self.refused = ways(trained, batches, wanted.seed)
        if not self.ways:
            reasons = "; ".join(f"{way}: {why}" for way, why in self.refused.items())
            raise UserError(f"nothing can be tried of this model ({reasons})", trained.path)
        self.judge = Judge(trained, self.ways, ledger, folder, wanted.subset, wanted.seed)

    # ---- the stages ------------------------------------------------------------------------------

    def run(self) -> Advice:
        """All stages."""
        found = [one for way in self.ways.values() for one in self.predicted(way)]
        groups = chosen(found, self.wanted.wishes, self.wanted.speed)
        if not groups:
            raise UserError(*self._impossible(found))
        if self.wanted.speed:  # there is one group then
            groups = [self.fast_ones(groups[0])]
        self.stage(f"{sum(map(len, groups))} combinations, on ever more sentences")
        left = [one for group in groups for one in self.halved(group, self._keep(groups))]
        left = list(dict.fromkeys(left))
        if self.wanted.tune:
            self.stage(f"{self.wanted.tune} updates of each of {len(left)} candidates")
            self.judge.tune(left, self.wanted.tune)
        finals = list(self.finals(self.translated(left) if self.wanted.wishes else left))
        return self.advice(finals)

    def predicted(self, way: Way) -> Iterator[Predicted]:
        """What is expected of all combinations of a way, from its places one by one."""
        self.stage(f"{way.name}: {MEANS[way.name]}")
        until = self.share_of(way)
        # The largest size of every place first: a way that is cut short has tried all places.
        sizes = itertools.zip_longest(*(
            [(place, size) for size in sizes] for place, sizes in way.sizes().items()
        ))  # fmt: skip
        alone = [one for found in sizes for one in found if one]
        base, singles = self.base(way), []
        for place, size in bar(way.name, alone):
            one = candidate(way.name, {**way.base, place: size})
            if not self.in_time(one.name, until):
                self.cut.append(way.name)
                break
            singles.append(Measured({place: size}, **self.judge.alone(one, self.number)))
        return combinations(way.name, base, singles, self.whole)

    def base(self, way: Way) -> Measured:
        """What the places of a way shrink from."""
        if not way.base:
            return Measured({}, 0.0, self.whole)
        start = candidate(way.name, way.base)
        return Measured(way.base, **self.judge.alone(start, self.number))

    def halved(self, group: Sequence[Candidate], keep: int) -> list[Candidate]:
        """The better half of a group, measured on twice as many sentences, and so on."""
        number, left = self.number, list(group)
        while len(left) > keep:
            left.sort(key=lambda one: (self.judge.loss(one, number), one.name))
            left = left[: max(keep, math.ceil(len(left) / 2))]
            if self.in_time(f"{2 * number} sentences", LATE):
                number *= 2
        return left

    def fast_ones(self, group: Sequence[Candidate]) -> list[Candidate]:
        """Those that are as fast as wished, or the fastest if none is."""
        self.stage(f"speed of {len(group)} candidates, in turn")
        speed = self.judge.speeds(group)
        wish = next(wish for wish in self.wanted.wishes if wish.what == SPEED)
        fast = [one for one in group if speed[one.name] >= wish.ratio]
        return fast or [max(group, key=lambda one: speed[one.name])]

    def translated(self, group: Sequence[Candidate]) -> list[Candidate]:
        """The best on a sample of translations; all where there is nothing to choose."""
        if len(group) <= FINALISTS or self.trained.is_language_model:
            return list(group)[:FINALISTS]
        self.stage(f"translations of {TRANSLATED_SHARE * self.number} sentences")
        scores = {one: self.judge.bleu(one, TRANSLATED_SHARE * self.number) for one in group}
        return sorted(group, key=lambda one: (-scores[one], one.name))[:FINALISTS]

    def finals(self, group: Sequence[Candidate]) -> Iterator[Final]:
        """The last candidates on the whole validation set."""
        self.stage(f"{len(group)} candidates on all of {self.wanted.subset}")
        speed = self.judge.speeds(group)
        for one in group:
            costs = ratios(counts(self.judge.make(one).model), self.whole)
            if one.name in speed:
                costs[SPEED] = speed[one.name]
            quality, drop, drops = self.judge.compared(one)
            low, high = percentiles(drops)
            within = float((drops <= self.wanted.max_loss).mean())
            yield Final(one, quality, drop, low, high, within, costs)

    def advice(self, finals: Sequence[Final]) -> Advice:
        """The answer: of those with all wishes within the loss the one that loses least, or without
        wishes the cheapest."""
        wanted = self.wanted
        if self.cut:
            self.note(f"not tried at all sizes, for want of time: {', '.join(self.cut)}")
        if wanted.tune:
            self.note(f"the commands make models before their {wanted.tune} updates")
        good = [one for one in finals if one.drop <= wanted.max_loss and wanted.met(one.ratios)]

        def price(one: Final) -> tuple[float, str]:
            costs = math.prod(one.ratios[what] for what in COUNTED)
            return one.drop if wanted.wishes else costs, one.candidate.name

        commands = {
            one.candidate.name: self.ways[one.candidate.way].commands(
                one.candidate, self.trained.path.name, "DATA", "smaller.pt"
            )
            for one in finals
        }
        return Advice(
            wanted, self.whole, self.judge.quality(None), [*finals],
            min(good, key=price, default=None), self.trained.is_language_model,
            commands, self.refused, self.notes,
            [{"name": name, **found} for name, found in self.ledger.found.items()
             if isinstance(found, dict) and "counts" in found],
        )  # fmt: skip

    # ---- what the stages need --------------------------------------------------------------------

    def stage(self, what: str) -> None:
        """Say what begins, and when."""
        say(f"{self.ledger.seconds / 60:5.1f} of {self.wanted.minutes:g} min: {what}")

    def note(self, line: str) -> None:
        """Something that the advice must say of itself."""
        say(line)
        self.notes.append(line)

    def share_of(self, way: Way) -> float:
        """Share of the minutes at whose end the places of a way must be done: what is left for all
        ways is dealt out evenly."""
        left = len(self.ways) - list(self.ways).index(way.name)

        def until() -> float:
            now = self.ledger.seconds / (60 * self.wanted.minutes)
            return now + max(0.0, OF_SINGLES - now) / left

        return self.ledger.get(f"until {way.name}", until)

    def in_time(self, what: str, share: float) -> bool:
        """Whether less than a share of the minutes was gone when this was asked of ``what`` first.

        It is kept: after an interruption the same things are done.
        """
        return self.ledger.get(
            f"in time {what}", lambda: self.ledger.seconds < share * 60 * self.wanted.minutes
        )

    def _sample(self) -> int:
        """Sentences of the first losses: a power of 2, by the model's size and the minutes."""
        places = 60  # about as many single places as there are
        a_sentence = 2 * self.whole["multiply_adds"] / RATE
        wanted = OF_SINGLES * 60 * self.wanted.minutes / places / max(a_sentence, 1e-6)
        return min(MOST, max(FEWEST, 2 ** int(math.log2(max(wanted, 1)))))

    def _keep(self, groups: Sequence[Sequence[Candidate]]) -> int:
        """How many of each group go on: those that learn are no more than those that end."""
        if len(groups) > 1:
            return 1
        return FINALISTS if self.wanted.tune else TRANSLATED

    def _impossible(self, found: Sequence[Predicted]) -> tuple[str, Path, str]:
        wishes = " ".join(map(str, self.wanted.wishes))
        near = nearest(found, self.wanted.wishes)
        costs = " ".join(f"{wish.what}={near.ratios[wish.what]:.2f}" for wish in self.wanted.wishes
                         if wish.what in near.ratios)  # fmt: skip
        todo = f"{costs} is the nearest ({near.candidate.name}): wish for less"
        return f"no candidate has {wishes}", self.trained.path, todo
