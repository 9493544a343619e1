"""One page of finished runs: quality against cost, a table, and the answer in three sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.figure import Figure

from collab_lab.metrics.significance import LOW, Gain
from collab_lab.results.collect import read_runs, warnings
from collab_lab.results.figure import GREY, STYLES, saved, styled
from collab_lab.results.render import interval, named, render, spread
from collab_lab.results.table import NO_TEST, NO_X, Table, differences, table_of
from collab_lab.results.table_text import heading, title

QUESTION = "Which model is the cheapest without a significant loss of quality?"
#: What quality is weighed against: the first in which models differ by more than :data:`SAME`.
COSTS = ("parameters", "multiply_adds", "cache_bytes_per_target_token")
SAME = 0.01
#: Small enough that its words are readable on a phone, where the page scales it to 350 pixels.
INCHES = (4.8, 3.2)


class Model(NamedTuple):
    """A row of the page.

    Attributes:
        number: in the figure and the table
        gain: the difference from the best model, paired by seed; None without common seeds
        costs: by name, of :data:`COSTS`
    """

    number: int
    name: str
    quality: float
    text: str
    seeds: int
    gain: Gain | None
    costs: dict[str, float]


class Answer(NamedTuple):
    """The models, best first, and what the page says of them.

    Attributes:
        cost: of the figure's axis; None where all costs are equal
        front: models that no other beats in quality and cost, the cheapest first
        pick: the cheapest model below the best one's cost without a significant loss; None if
            there is none, or one seed leaves that open
    """

    models: list[Model]
    cost: str | None
    front: list[Model]
    pick: Model | None
    score: str


def page(folders: Sequence[Path]) -> tuple[str, str]:
    """The page in HTML, and its answer for a terminal."""
    frame, unfinished = read_runs(folders)
    table = table_of(frame, NO_X, NO_TEST)
    found = answer_of(table)
    said = sentences(found)
    text = render(
        "report.html.j2",
        question=QUESTION,
        about=title(table),
        sentences=said,
        figure=found.cost and figure(found),
        answer=found,
        heading=heading,
        interval=interval,
        notes=[*warnings(frame), *(f"not in the page: {line}" for line in unfinished)],
        first=frame.iloc[0].dropna(),
    )
    return text, "\n".join(said)


def answer_of(table: Table) -> Answer:
    """Rank rows by their mean score, and weigh it against cost."""
    score = table.score
    sign = -1 if score.startswith("perplexity") else 1
    ranked = sorted(table.rows, key=lambda row: -sign * fmean(row.values(score)))
    tests = {one.row.label: one.gain for one in differences(table, ranked[0].label)}
    models = [
        Model(
            number,
            named(row.label),
            fmean(values := row.values(score)),
            spread(values),
            len(values),
            tests.get(row.label),
            {name: fmean(costs) for name in COSTS if (costs := row.values(name))},
        )
        for number, row in enumerate(ranked, 1)
    ]
    best = models[0]
    known = [name for name in COSTS if all(name in one.costs for one in models)]
    spent = {name: [one.costs[name] for one in models] for name in known}
    cost = next((name for name, of in spent.items() if min(of) < max(of) * (1 - SAME)), None)
    if cost is None:
        return Answer(models, None, [best], None, score)
    points = unbeaten((one.costs[cost], -sign * one.quality, one.number) for one in models)
    cheaper = [one for one in models if one.costs[cost] < best.costs[cost] * (1 - SAME)]
    level = [one for one in cheaper if one.gain and one.gain.p and not one.gain.significant]
    pick = min(level, key=lambda one: one.costs[cost], default=None)
    return Answer(models, cost, [models[number - 1] for *_, number in points], pick, score)


def sentences(answer: Answer) -> list[str]:
    """The answer: the best model, the cheapest without a significant loss, and its interval."""
    best, pick, cost = answer.models[0], answer.pick, answer.cost
    name = heading(answer.score)
    seeds = "1 seed" if best.seeds == 1 else f"{best.seeds} seeds"
    if answer.score == "bleu" and best.quality < LOW:
        return [f"No model translates: the best, {best.name}, has BLEU {best.text} ({seeds})."]
    found = [f"Best: {best.name} ({name} {best.text}, {seeds})."]
    if cost is None:
        return [*found, "All models have equal costs."]
    if pick is None or pick.gain is None or pick.gain.low is None or pick.gain.high is None:
        cheapest = answer.front[0]
        found.append(f"No cheaper model is known to be as good; the cheapest on the Pareto front "
                     f"is {cheapest.name} ({name} {cheapest.text}).")  # fmt: skip
        tested = any(one.gain and one.gain.p for one in answer.models)
        return [*found, "Tested over seeds." if tested else "One seed has no interval: no test."]
    share = pick.costs[cost] / best.costs[cost] - 1
    found.append(
        f"Cheapest without a significant loss: {pick.name}, {share:+.0%} {heading(cost)}, "
        f"{pick.gain.mean:+.2f} {name}."
    )
    low, high = pick.gain.low, pick.gain.high
    found.append(f"Its 95% interval is {low:+.2f} to {high:+.2f}: not significant is not equal.")
    return found


def unbeaten(points: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Of ``(cost, loss, ...)`` those that no other beats in both, the cheapest first."""
    found: list[tuple[Any, ...]] = []
    least = float("inf")
    for (_, loss), equal in groupby(sorted(points), key=lambda point: point[:2]):
        if loss < least:
            found += equal
            least = loss
    return found


@styled
def figure(answer: Answer) -> Markup:
    """Quality against cost, each model by its number; the Pareto front is a line."""
    blue = STYLES["own"][0]
    cost, name = str(answer.cost), heading(answer.score)
    drawn = Figure(figsize=INCHES, layout="constrained")
    axes = drawn.add_subplot()
    places = {one.number: (one.costs[cost] / 1e6, one.quality) for one in answer.models}
    axes.plot(*zip(*(places[one.number] for one in answer.front), strict=True), "--", color=blue)
    for one in answer.models:
        axes.plot(*places[one.number], "o", color=blue if one in answer.front else GREY)
        axes.annotate(str(one.number), places[one.number], (5, -9), textcoords="offset points")
    axes.set(xlabel=f"{heading(cost)}, millions", ylabel=name)
    axes.set_title(f"{name} against {heading(cost)}")
    axes.grid(axis="y")
    text = saved(drawn, "svg").decode().partition("<svg")[2]
    return Markup('<svg role="img"' + re.sub(r' xmlns(:\w+)?="[^"]*"', "", text))
