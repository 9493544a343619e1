"""The solver: a multiple-choice knapsack, by branch and bound.

It chooses one option for each place, at the least total price and within budgets of costs.  It does
not know what places and options are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from collab_common.errors import UserError
from collab_common.progress import say

K = TypeVar("K")
#: Something with a price, and costs.
P = TypeVar("P", bound=Any)
#: Seconds after which the best choice so far is taken.
SECONDS = 60.0
#: The solver's status when its time is up.
OUT_OF_TIME = 1
#: The largest gap that is not reported: the solver's tolerance.
GAP = 1e-6


class OutOfTimeError(UserError):
    """The time ended before any choice was found, so that there may be one."""


class Together(NamedTuple):
    """A constraint on places: if one has an option with a value of ``of``, all have this value.

    Attributes:
        of: computes the value of an option; None for an option without constraint.
    """

    places: Collection[Any]
    of: Callable[[Any], Hashable | None]


def cheapest(
    options: Mapping[K, Sequence[P]],
    budgets: Mapping[str, int],
    together: Sequence[Together] = (),
    *,
    exactly: Mapping[str, int] | None = None,
    at_least: Mapping[str, int] | None = None,
    seconds: float = SECONDS,
) -> dict[K, P] | None:
    """Choose one option for each place so that the sum of prices is least, within all budgets.

    If the time runs out, the best choice so far is returned, and a line says how much cheaper
    another one may be.

    Args:
        options: the options of each place; each has a ``price``, and its costs as attributes.
        budgets: largest sum of each cost, by the name of the attribute.
        together: constraints between places.
        exactly: sums of costs that must be met exactly.
        at_least: smallest sum of each cost.
        seconds: time limit.

    Returns:
        The option of each place; None if no choice meets the budgets.

    Raises:
        OutOfTimeError: the time runs out before any choice is found.
    """
    pairs = [(key, option) for key, of in options.items() for option in of]
    one_per_place = [[key == place for key, _ in pairs] for place in options]
    limits = [LinearConstraint(one_per_place, 1, 1)]
    for one in together:
        limits += _agreeing(pairs, one)
    for resource, budget in [*budgets.items(), *(exactly or {}).items()]:
        costs = [int(getattr(option, resource)) for _, option in pairs]
        unit = math.gcd(*costs) or 1  # small numbers: the solver's tolerance is absolute
        least = budget / unit if resource in (exactly or {}) else -np.inf
        limits.append(LinearConstraint([cost // unit for cost in costs], least, budget // unit))
    for resource, least in (at_least or {}).items():
        limits.append(LinearConstraint([getattr(one, resource) for _, one in pairs], least, np.inf))
    prices = [option.price for _, option in pairs]
    # The solver takes sums as equal that differ by less than 1e-6.
    scale = 1e6 / max(*map(abs, prices), 1e-12)
    solution = milp(
        [scale * price for price in prices],
        integrality=1,
        bounds=Bounds(0, 1),
        constraints=limits,
        options={"mip_rel_gap": 0, "time_limit": seconds},
    )
    out_of_time = solution.status == OUT_OF_TIME
    if solution.x is None:
        if out_of_time:
            problem = f"the search found no plan within {seconds:g} seconds"
            todo = "ask for a larger share, or allow fewer kinds of cuts"
            raise OutOfTimeError(problem, todo=todo)
        return None
    if out_of_time and solution.mip_gap > GAP:
        say(
            f"the plan is the best of {seconds:g} seconds: another one may be up to "
            f"{solution.mip_gap:.1%} cheaper"
        )
    return {key: option for (key, option), x in zip(pairs, solution.x, strict=True) if x > 0.5}


def _agreeing(pairs: Sequence[tuple[Any, Any]], together: Together) -> Iterator[LinearConstraint]:
    """Constraints by which all these places take options of one value, or none of them does."""
    values: dict[Any, dict[Any, list[int]]] = {}  # columns in ``pairs``, by value and place
    known = {key for key, _ in pairs}
    places = [place for place in together.places if place in known]
    for column, (key, option) in enumerate(pairs):
        if key in places and (value := together.of(option)) is not None:
            values.setdefault(value, {}).setdefault(key, []).append(column)
    for columns in values.values():
        taken = np.zeros((len(places), len(pairs)))
        for row, place in zip(taken, places, strict=True):
            row[columns.get(place, [])] = 1
        if len(taken) > 1:
            yield LinearConstraint(taken[1:] - taken[0], 0, 0)
