"""What a user wants of a smaller model, and what a model costs, in the same words.

    cache           bytes cached for a source and a target token, all decoder layers together
    parameters      each shared one once
    multiply_adds   of a sentence pair of 30 tokens a side (:mod:`fairseq_collab.metrics.cost`)
    speed           sentences a second, against the given model in turn

The first three are shares of the given model's, at most; speed is a multiple of it, at least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairseq_collab.metrics.cost import cost, multiply_adds

#: What is counted of a built model; speed alone must be measured.
COUNTED = ("cache", "parameters", "multiply_adds")
SPEED = "speed"
NAMES = {
    "cache": "cached bytes a token",
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
    """A wish as the command line spells it: ``cache=0.5``, ``speed=1.5``.

    Raises:
        ValueError: another cost, or a ratio that is no wish.
    """
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
