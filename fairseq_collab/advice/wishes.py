"""What a user asks for, what a model costs, and what was found.

    cache           bytes cached for a source and a target token, all decoder layers together
    parameters      each shared one once
    multiply_adds   of a sentence pair of 30 tokens a side (:mod:`fairseq_collab.metrics.cost`)

A wish is a share of the given model's cost that must not be exceeded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairseq_collab.advice.candidates import Candidate
from fairseq_collab.metrics.cost import cost, multiply_adds

NAMES = {
    "cache": "KV cache per token",
    "parameters": "parameters",
    "multiply_adds": "multiply-adds",
}


class Wish(NamedTuple):
    """At most ``share`` of the given model's cost ``what``."""

    what: str
    share: float

    def __str__(self) -> str:
        return f"{self.what}={self.share:g}"


def parse(text: str) -> Wish:
    """A wish as the command line spells it (``cache=0.5``); raises ValueError."""
    what, _, number = text.partition("=")
    what = what.replace("-", "_")
    try:
        share = float(number)
    except ValueError:
        share = math.nan
    if what not in NAMES:
        raise ValueError(f"{text!r} names none of {', '.join(NAMES)}, as in cache=0.5")
    if not 0 < share < 1:
        raise ValueError(f"{text!r}: the share must be above 0 and below 1")
    return Wish(what, share)


def met(wishes: Sequence[Wish], ratios: Mapping[str, float]) -> bool:
    """Whether a model with these shares of the costs meets all wishes."""
    return all(ratios[wish.what] <= wish.share for wish in wishes)


def counts(model: Any) -> dict[str, int]:
    """The costs of a model; multiply-adds are 0 for a model that cannot be counted."""
    found = cost(model)
    cache = (
        found.key_bytes_per_target_token
        + found.value_bytes_per_target_token
        + found.key_bytes_per_source_token
        + found.value_bytes_per_source_token
    )
    work = multiply_adds(model) or 0
    return {"cache": cache, "parameters": found.parameters, "multiply_adds": work}


def ratios(found: Mapping[str, int], whole: Mapping[str, int]) -> dict[str, float]:
    """Costs as shares of the given model's."""
    return {what: found[what] / whole[what] if whole[what] else 1.0 for what in NAMES}


@dataclass(frozen=True)
class Final:
    """A candidate on the whole validation set.

    Attributes:
        drop: BLEU lost against the given model; ``low``, ``high``: its 95 % interval.
        ratios: costs as shares of the given model's.
        command: makes the same model by hand.
    """

    candidate: Candidate
    bleu: float
    drop: float
    low: float
    high: float
    ratios: dict[str, float]
    command: str
