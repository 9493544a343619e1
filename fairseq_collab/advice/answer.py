"""What is asked for, and what is found: the words between the search, the command and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq_collab.advice.candidates import Candidate
from fairseq_collab.advice.wishes import SPEED, Wish


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
    def nearest(self) -> Final:
        """The answer, or what comes nearest to one: of the candidates with all wishes, if any, the
        one that loses least."""
        met = self.wanted.met
        return self.answer or min(self.finals, key=lambda one: (not met(one.ratios), one.drop))
