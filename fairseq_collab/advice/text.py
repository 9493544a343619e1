"""The answer as text, for the terminal and for ``advice.md``."""

from __future__ import annotations

from collections.abc import Iterator

from fairseq_collab.advice.candidates import MEANS, PLACES_MEAN
from fairseq_collab.advice.search import Advice
from fairseq_collab.advice.wishes import NAMES, Final
from fairseq_collab.results.tables import grid, num


def lines(advice: Advice) -> Iterator[str]:
    """The answer, a table of the last candidates, and how to make each."""
    best = advice.finals[0]
    asked = f"{' '.join(map(str, advice.wishes))}, at most {advice.max_loss:g} BLEU lost"
    if advice.answer:
        yield f"{asked}: {best.candidate.name}"
    else:
        yield f"{asked}: no candidate; {best.candidate.name} loses least"
    yield f"\n{MEANS[best.candidate.method]} ({PLACES_MEAN}).\n"
    yield grid(["candidate", "BLEU", "lost (95 %)", *NAMES.values()], map(row, advice.finals))
    yield f"\nThe given model has {advice.bleu:.2f} BLEU. Costs are shares of its costs."
    yield f"{advice.subset} chose the candidate: score it on other data."
    for one in advice.finals:
        yield f"\n{one.candidate.name}:\n\n    {one.command}"
    if advice.refused:
        yield ""
    yield from (f"not tried: {name} ({why})" for name, why in advice.refused.items())


def row(one: Final) -> list[str]:
    """A candidate's row of the table."""
    drop, low, high = (num(value, ".2f") for value in (one.drop, one.low, one.high))
    costs = [f"{one.ratios[what]:.2f}" for what in NAMES]
    return [one.candidate.name, f"{one.bleu:.2f}", f"{drop} ({low} to {high})", *costs]
