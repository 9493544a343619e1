"""The answer as text, for the terminal and for ``advice.md``."""

from __future__ import annotations

from collections.abc import Iterator

from fairseq_collab.advice.candidates import MEANS, PLACES_MEAN
from fairseq_collab.advice.search import Advice
from fairseq_collab.advice.wishes import NAMES, Final
from fairseq_collab.results.tables import grid, num


def lines(advice: Advice) -> Iterator[str]:
    """The answer first, then a table of the last candidates and how to make each."""
    best, subset = advice.finals[0], advice.subset
    asked = f"{' '.join(map(str, advice.wishes))}, at most {advice.max_loss:g} {advice.metric} lost"
    if advice.answer:
        yield f"{asked}: {best.candidate.name}"
    else:
        yield f"{asked}: no candidate; {best.candidate.name} loses least"
    yield ""
    yield f"{MEANS[best.candidate.method]} ({PLACES_MEAN})."
    yield (
        f"It loses {loss(best)} {advice.metric} of {advice.quality:.2f} on {subset} (95 % "
        f"interval), and at most {advice.max_loss:g} in {best.within:.0%} of bootstrap samples."
    )
    yield f"{subset} chose this model: score it on other data."
    yield ""
    yield table(advice)
    for one in advice.finals:
        yield f"\n{one.candidate.name}:\n"
        yield from (f"    {command}" for command in one.commands)
    if advice.refused:
        yield ""
    yield from (f"not tried: {name} ({why})" for name, why in advice.refused.items())


def loss(one: Final) -> str:
    """The loss of quality with its interval."""
    drop, low, high = (num(value, ".2f") for value in (one.drop, one.low, one.high))
    return f"{drop} ({low} to {high})"


def table(advice: Advice) -> str:
    """One row per candidate: costs as shares of the given model's, speed as a multiple."""
    header = ["candidate", advice.metric, "lost (95 %)", *NAMES.values(), "speed"]
    rows = [
        [
            one.candidate.name,
            f"{one.quality:.2f}",
            loss(one),
            *(f"{one.ratios[what]:.2f}" for what in NAMES),
            num(one.speed, ".2f"),
        ]
        for one in advice.finals
    ]
    return grid(header, rows)
