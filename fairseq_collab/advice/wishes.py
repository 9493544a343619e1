"""What a user wants of a smaller model, what a model costs, and what is found, in the same words.

    cache           bytes cached for a source and a target token, all decoder layers together
    parameters      each shared one once
    multiply_adds   of a sentence pair of 30 tokens a side (:mod:`fairseq_collab.metrics.cost`)
    speed           sentences a second, against the given model in turn

The first three are shares of the given model's, at most; speed is a multiple of it, at least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairseq_collab.advice.candidates import Candidate
from fairseq_collab.metrics.cost import cost, multiply_adds

#: What is counted of a built model; speed alone must be measured.
COUNTED = ("cache", "parameters", "multiply_adds")
SPEED = "speed"
NAMES = {
    "cache": "cached bytes per token",
    "parameters": "parameters",
    "multiply_adds": "multiply-adds",
    SPEED: "speed",
}
Counts = Mapping[str, int]


class Wish(NamedTuple):
    """``what`` at ``ratio`` times the given model's: at most, or for speed at least."""

    what: str
    ratio: float

    def met(self, ratios: Mapping[str, float]) -> bool:
        """Whether a model of these ratios has it."""
        found = ratios[self.what]
        return found >= self.ratio if self.what == SPEED else found <= self.ratio

    def __str__(self) -> str:
        return f"{self.what}={self.ratio:g}"


def parse(text: str) -> Wish:
    """A wish as the command line spells it (``cache=0.5``, ``speed=1.5``); raises ValueError."""
    what, _, number = text.partition("=")
    what = what.replace("-", "_")
    try:
        ratio = float(number)
    except ValueError:
        ratio = math.nan
    if what not in NAMES:
        raise ValueError(f"{text!r} names none of {', '.join(NAMES)}, as in cache=0.5")
    if what == SPEED and not 1 < ratio < math.inf:
        raise ValueError(f"{text!r}: the speed wished for must be above 1, as in speed=1.5")
    if what != SPEED and not 0 < ratio < 1:
        raise ValueError(f"{text!r}: the share wished for must be above 0 and below 1")
    return Wish(what, ratio)


def counts(model: Any) -> dict[str, int]:
    """What is :data:`COUNTED` of a model; multiply-adds are 0 where nobody can count them."""
    found = cost(model)
    cache = (
        found.key_bytes_per_target_token
        + found.value_bytes_per_target_token
        + found.key_bytes_per_source_token
        + found.value_bytes_per_source_token
    )
    work = multiply_adds(model) or 0
    return {"cache": cache, "parameters": found.parameters, "multiply_adds": work}


def ratios(found: Counts, whole: Counts) -> dict[str, float]:
    """Costs as shares of the given model's."""
    return {what: found[what] / whole[what] if whole[what] else 1.0 for what in COUNTED}


def counted(wishes: Sequence[Wish]) -> list[Wish]:
    """Those that a built model meets or does not, before anything is timed."""
    return [wish for wish in wishes if wish.what in COUNTED]


# ---- the question and the answer -----------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Attributes:
        max_loss: of BLEU; of a language model, of perplexity.
        tune: updates of each of the last candidates.
        subset: the validation set.
    """

    wishes: tuple[Wish, ...] = ()
    max_loss: float = 0.3
    minutes: float = 15
    tune: int = 0
    seed: int = 1
    subset: str = "valid"

    @property
    def speed(self) -> bool:
        """Whether a speed is wished for."""
        return any(wish.what == SPEED for wish in self.wishes)

    def met(self, ratios: Mapping[str, float]) -> bool:
        """Whether a model of these ratios has all wishes."""
        return all(wish.met(ratios) for wish in self.wishes)


@dataclass(frozen=True)
class Final:
    """A candidate on the whole validation set.

    Attributes:
        quality: BLEU; perplexity of a language model.
        drop: how much worse than the given model; ``low``, ``high``: its 95 % interval.
        within: share of the bootstrap samples in which the drop is at most ``max_loss``.
        ratios: costs as shares of the given model's, speed as a multiple (none of language models).
    """

    candidate: Candidate
    quality: float
    drop: float
    low: float
    high: float
    within: float
    ratios: dict[str, float]


@dataclass
class Advice:
    """What was found; ``answer`` is None where no candidate has what was asked for."""

    wanted: Wanted
    counts: dict[str, int]
    quality: float
    finals: list[Final]
    answer: Final | None
    language_model: bool
    commands: dict[str, list[str]]
    refused: dict[str, str]
    notes: list[str] = field(default_factory=list)
    tried: list[dict[str, Any]] = field(default_factory=list)

    @property
    def quality_name(self) -> str:
        """Of ``quality``."""
        return "perplexity" if self.language_model else "BLEU"

    @property
    def nearest(self) -> Final:
        """The answer, or what comes nearest to one: of the candidates with all wishes, if any, the
        one that loses least."""
        met = self.wanted.met
        return self.answer or min(self.finals, key=lambda one: (not met(one.ratios), one.drop))
