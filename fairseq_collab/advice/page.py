"""What an advice says: a few lines for a terminal, and a page that opens with the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairseq_collab.advice.candidates import MEANS, PLACES_MEAN
from fairseq_collab.advice.wishes import COUNTED, NAMES, SPEED, Advice, Final
from fairseq_collab.results import inline as charts
from fairseq_collab.results.html import render
from fairseq_collab.results.report import unbeaten
from fairseq_collab.results.tables import num

NAME = "advice.html"


def lines(advice: Advice, out: Path | None) -> str:
    """The answer in a few lines; ``out`` is the model that was written, None without an answer."""
    one = advice.nearest
    wishes = " ".join(map(str, advice.wanted.wishes)) or "the cheapest"
    loss = f"at most {advice.wanted.max_loss:g} {advice.quality_name} lost"
    if advice.answer:
        first = f"{wishes}, {loss}: {one.candidate.name}"
    else:
        first = f"{wishes}, {loss}: no candidate has it; the nearest is {one.candidate.name}"
    found = [first, f"  means  {MEANS[one.candidate.way]} ({PLACES_MEAN})"]
    found += [f"  costs  {costs(one)}", f"  loses  {losses(advice, one)}"]
    found += [f"  make   {line}" for line in advice.commands[one.candidate.name]]
    found += [f"  note   {note}" for note in advice.notes]
    found.append("Validation data chose this model: score it on other data.")
    if out:
        found.append(f"{out}: the model")
    return "\n".join(found)


def costs(one: Final) -> str:
    """Costs as shares of the given model's, speed as a multiple where it is measured."""
    shares = ", ".join(f"{one.ratios[what]:.0%} of its {NAMES[what]}" for what in COUNTED)
    speed = f", {one.ratios[SPEED]:.2f} times its speed" if SPEED in one.ratios else ""
    return shares + speed


def losses(advice: Advice, one: Final) -> str:
    """What it loses, with the interval, and how sure that is."""
    drop, low, high = (num(value, ".2f") for value in (one.drop, one.low, one.high))
    return (
        f"{drop} {advice.quality_name} of {advice.quality:.2f} on {advice.wanted.subset} "
        f"(95 % interval {low} to {high}); at most {advice.wanted.max_loss:g} in "
        f"{one.within:.0%} of bootstrap samples"
    )


def page(advice: Advice, made: dict[str, Any]) -> str:
    """The whole page, with how it was ``made``; the same advice gives the same page."""
    return render(
        "advice.html.j2",
        title="Which smaller model?",
        sections=[("why", "Why"), ("make", "How to make each"), ("made", "How this was found")],
        advice=advice,
        one=advice.nearest,
        ranked=ranked(advice),
        means=MEANS,
        places=PLACES_MEAN,
        costs=costs,
        losses=losses,
        names={what: name for what, name in NAMES.items() if what in advice.finals[0].ratios},
        quality=advice.quality_name,
        figure=figure(advice),
        made=made,
    )


def ranked(advice: Advice) -> list[Final]:
    """The last candidates, what is advised first."""
    return sorted(advice.finals, key=lambda one: (one is not advice.nearest, one.drop))


def figure(advice: Advice) -> Any:
    """Quality against the first cost that is wished for, each model by its number."""
    what = advice.wanted.wishes[0].what if advice.wanted.wishes else "cache"
    drawn, axes = charts.axes_of(f"{NAMES[what]}, share of the given model's", advice.quality_name)
    axes.plot(1, advice.quality, "D", color=charts.TEXT)
    axes.annotate("given", (1, advice.quality), (-6, 6), textcoords="offset points", ha="right",
                  fontsize=charts.FONT, color=charts.TEXT)  # fmt: skip
    sign = -1 if what == SPEED else 1  # of speed, more is better
    front = unbeaten((sign * one.ratios[what], one.drop) for one in advice.finals)
    ends = [(1.0, 0.0), *((sign * cost, drop) for cost, drop in reversed(front))]
    axes.plot(
        [x for x, _ in ends], [_level(advice, y) for _, y in ends], "--", color=charts.LINK,
        linewidth=1,
    )  # fmt: skip
    for number, one in enumerate(ranked(advice), 1):
        x, best = one.ratios[what], one is advice.answer
        colour = charts.LINK if best else charts.FAINT
        axes.vlines(x, _level(advice, one.high), _level(advice, one.low), color=colour, linewidth=1)
        axes.plot(x, one.quality, "o", color=colour, markersize=8 if best else 5)
        axes.annotate(str(number), (x, one.quality), (6, -6), textcoords="offset points", va="top",
                      fontsize=charts.FONT, color=charts.TEXT)  # fmt: skip
    axes.axhline(_level(advice, advice.wanted.max_loss), color=charts.LINE, linewidth=1)
    axes.set(xmargin=0.25, ymargin=0.15)
    return charts.inline(drawn, "advice", f"{advice.quality_name} against {NAMES[what]}")


def _level(advice: Advice, drop: float) -> float:
    """The quality of a model that loses so much."""
    return advice.quality + drop if advice.language_model else advice.quality - drop
