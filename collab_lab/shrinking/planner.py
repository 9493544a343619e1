"""The planner: it combines the offers of cuts, and finds the cheapest plan within budgets.

    minimise the total price of one shape per site, within budgets of cache, parameters, heads, time

A site's options are all combinations of the offers for its parts, without those that another one
beats; the solver, :mod:`.knapsack`, chooses among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.shrinking.cut import ANY_BITS, Cut, Offer, Tie, reject
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.knapsack import OutOfTimeError, Together, cheapest
from collab_lab.shrinking.plan import ANYTHING, RESOURCES, Allowed, Plan
from collab_lab.shrinking.shape import (
    PARTS,
    Shape,
    Site,
    as_it_is,
    costs,
    model_costs,
    sites_of,
    whole_costs,
    width_of,
)
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.feed_forward import FeedForward, feed_forwards

#: Parts of the whole in which times are counted.
MILLION = 1_000_000


class OutOfReachError(UserError):
    """No plan meets the targets.

    Attributes:
        least: smallest reachable share of each resource, if the others may have any share.
    """

    least: Mapping[str, float]

    @classmethod
    def of(
        cls,
        shares: Mapping[str, float],
        leasts: Iterable[Mapping[str, float]],
        parts: Collection[str],
        where: Any = None,
        reasons: Iterable[str] = (),
    ) -> OutOfReachError:
        """Write the error for these targets.

        Args:
            shares: the targets: largest share of each resource.
            leasts: smallest reachable shares, for each kind of heads that was tried.
            parts: what may be cut, from :data:`.shape.PARTS`.
            where: the checkpoint, for the message.
            reasons: why further kinds of heads do not fit the model.
        """
        listed = [*leasts]
        least = {name: min(one[name] for one in listed) for name in shares}
        each = " of each (if the others may be larger)" if len(shares) > 1 else ""
        cut = [part for part in PARTS if part in parts]
        some = "" if len(cut) == len(PARTS) else f"with only {' and '.join(cut)} cut, "
        offered = f"{some}the smallest share{each} that shrink offers is {spelled(least)}"
        todo = "; ".join([offered, *reasons])
        error = cls(f"no smaller model reaches {spelled(shares)}", where, todo)
        error.least = least
        return error


def propose(evidence: Evidence, shares: Mapping[str, float], allowed: Allowed = ANYTHING) -> Plan:
    """Find the cheapest plan that leaves at most these shares of the model's costs.

    Args:
        shares: largest share (0 to 1) of cache, parameters and heads (see
            :func:`.shape.whole_costs`), and of the model's time.

    Raises:
        OutOfReachError: no plan is within the budgets.
        OutOfTimeError: none was found in time.
        UserError: none of the allowed cuts fits the model.
    """
    plans, reasons, leasts = list[Plan](), list[str](), list[Mapping[str, float]]()
    for kind, cuts in allowed.candidates().items():
        try:
            plans.append(Planner(evidence, kind, cuts, allowed).solve(shares))
        except OutOfReachError as error:
            leasts.append(error.least)
        except OutOfTimeError:
            raise  # there may be a plan
        except UserError as error:
            reasons.append(f"{kind}: {'; '.join(filter(None, (error.problem, error.todo)))}")
    if not plans and leasts:
        raise OutOfReachError.of(shares, leasts, allowed.parts, evidence.trained.path, reasons)
    if not plans:
        problem = f"no smaller model reaches {spelled(shares)}"
        raise UserError(problem, evidence.trained.path, "; ".join(reasons))
    return min(plans, key=lambda plan: plan.price)


class Choice(NamedTuple):
    """The choice for one part of a site: an offer, and the cut that made it, if any."""

    part: str
    cut: Cut | None
    offer: Offer


class Option(NamedTuple):
    """A possible shape of a site, with its price, its costs, and the choice for each part.

    Attributes:
        price: predicted loss in bits per target token.
        cache: bits per token in the KV cache.
        time: time that the shape adds to that of the uncut model, in millionths of the given
            model's time (below 0 if it saves time).
    """

    shape: Shape
    price: float
    cache: int
    parameters: int
    heads: int
    time: int = 0
    choices: tuple[Choice, ...] = ()


class Planner:
    """The options that some cuts give all sites of a model, and the search among them."""

    def __init__(
        self, evidence: Evidence, kind: str, cuts: Sequence[Cut], allowed: Allowed = ANYTHING
    ):
        trained, self.times = evidence.trained, allowed.times
        reject(trained, cuts, "cannot be cut this way")
        self.trained, self.kind, self.cuts = trained, kind, cuts
        self.whole = whole_costs(trained)._asdict()
        self.costs = model_costs(trained)._asdict()
        every: list[Site] = [a for a in attentions(trained.model) if a.module.num_heads]
        every += feed_forwards(trained.model) if any(c.part == "units" for c in cuts) else []
        if self.times is not None:
            self.whole["time"], self.costs["time"] = MILLION, round(MILLION * self.times.uncut)
        self.ties = [tie for cut in cuts for tie in cut.ties(every)]
        values = [tie.of for tie in self.ties]
        self.options = {
            site: undominated([*self._options(site, evidence, allowed)], values)
            for site in bar("sizes", every)
        }

    def _options(self, site: Site, evidence: Evidence, allowed: Allowed) -> Iterable[Option]:
        """Every shape of a site: of each part one offer, or the site as it is."""
        of_part = {part: [*self._offers(part, site, evidence, allowed)] for part in PARTS}
        if isinstance(site, FeedForward):
            for choice in of_part["units"]:
                yield self._option(site, choice.offer.shape, [choice])
            return
        for fewer in of_part["heads"]:
            heads = fewer.offer.shape.heads
            if not heads:
                yield self._option(site, Shape(), [fewer])
                continue
            for cached in of_part["cache"]:
                shape = replace(cached.offer.shape, heads=heads)
                if cached.cut is None or cached.cut.fits(site, shape):
                    yield self._option(site, shape, [fewer, cached])

    def _offers(
        self, part: str, site: Site, evidence: Evidence, allowed: Allowed
    ) -> Iterable[Choice]:
        """The offers for a part of a site; without any, that it stays as it is.

        A user's cut of heads or units need not offer that they stay.
        """
        cuts = [cut for cut in self.cuts if cut.part == part]
        if part == "cache" and (isinstance(site, FeedForward) or site.type == "encoder"):
            cuts = []  # nothing is cached
        found = [Choice(part, cut, offer) for cut in cuts for offer in cut.offers(site, evidence)]
        if part == "cache":
            others = {*ANY_BITS} - {*allowed.bits}  # of a user's cut, other numbers stay
            found = [c for c in found if c.offer.shape.bits not in others]
        is_own = part != "cache" and any(cut in allowed.own for cut in cuts)
        if not found or (is_own and all(c.offer.shape.width < width_of(site) for c in found)):
            found.append(Choice(part, None, Offer(as_it_is(site), 0.0)))
        return found

    def _option(self, site: Site, shape: Shape, choices: Sequence[Choice]) -> Option:
        price = sum(choice.offer.price for choice in choices)
        time = 0 if self.times is None else round(MILLION * self.times.change(site, shape))
        return Option(shape, price, *costs(site, shape), time, tuple(choices))

    def solve(self, shares: Mapping[str, float], exactly: Mapping[str, int] | None = None) -> Plan:
        """Find the cheapest plan within the budgets; raise OutOfReachError if there is none.

        Args:
            shares: largest share of each resource.
            exactly: costs that the plan must have exactly.
        """
        if unknown := sorted({*shares} - {*RESOURCES}):
            raise UserError(f"{unknown[0]!r} must be one of {', '.join(RESOURCES)}")
        budgets = {
            name: int(share * self.whole[name] + 1e-6) - self._fixed(name)
            for name, share in shares.items()
        }
        sums = {name: number - self._fixed(name) for name, number in (exactly or {}).items()}
        together, one_head = self._together(), self._one_head()
        chosen = cheapest(self.options, budgets, together, exactly=sums, at_least=one_head)
        if chosen is None:
            leasts = [{name: self._least(name) for name in shares}]
            raise OutOfReachError.of(shares, leasts, {cut.part for cut in self.cuts})
        return self._plan(chosen)

    def _together(self) -> list[Together]:
        """Sites whose shapes must agree."""
        return [Together(tie.sites, partial(_tied, tie)) for tie in self.ties]

    def _one_head(self) -> dict[str, int]:
        """The constraint that a model with heads keeps one."""
        return {"heads": 1} if any(isinstance(site, Attention) for site in self.options) else {}

    def _fixed(self, name: str) -> int:
        """The cost of what has no options."""
        if name == "time":
            return self.costs[name]
        return self.costs[name] - sum(
            getattr(costs(site, as_it_is(site)), name) for site in self.options
        )

    def fewest(self, name: str) -> int:
        """The least of one cost that a plan can have, if its other costs do not matter."""
        alone = {
            site: [option._replace(price=float(getattr(option, name))) for option in of]
            for site, of in self.options.items()
        }
        least = cheapest(alone, {}, self._together(), at_least=self._one_head())
        assert least is not None
        return self._fixed(name) + sum(getattr(option, name) for option in least.values())

    def _least(self, name: str) -> float:
        """The same as a share."""
        return math.ceil(1000 * self.fewest(name) / self.whole[name]) / 1000

    def _plan(self, chosen: Mapping[Site, Option]) -> Plan:
        shapes = {
            site: chosen[site].shape if site in chosen else as_it_is(site)
            for site in sites_of(self.trained)
        }
        prices = {"heads": 0.0, "units": 0.0, "cache": 0.0}
        sites: dict[Cut, list[Site]] = {cut: [] for cut in self.cuts}
        of_sites = dict[Site, float]()
        for site, option in chosen.items():
            for part, cut, offer in option.choices:
                prices[part] += offer.price
                if cut is not None:
                    sites[cut].append(site)
                    if part == "cache":
                        of_sites[site] = offer.price
        total = {
            name: self._fixed(name) + sum(getattr(option, name) for option in chosen.values())
            for name in self.whole
        }
        whole = dict(self.whole)
        time = total.pop("time") / whole.pop("time") if self.times is not None else None
        cuts = [(cut, sites[cut]) for cut in self.cuts]
        return Plan(self.kind, shapes, cuts, prices, total, whole, time, of_sites)


def _tied(tie: Tie, option: Option) -> Hashable | None:
    return tie.of(option.shape)


def undominated(
    options: Sequence[Option], tied: Sequence[Callable[[Shape], Hashable | None]] = ()
) -> list[Option]:
    """The options that no other option beats in price and in all costs.

    Args:
        tied: functions whose values must agree between sites: the best options of each value are
            kept, because this value may be the best for all sites together.
    """
    kept: dict[tuple[Hashable, ...], list[Option]] = {}
    for option in sorted(options, key=cheapest_first):
        same = kept.setdefault(tuple(of(option.shape) for of in tied), [])
        if not any(
            other.cache <= option.cache
            and other.parameters <= option.parameters
            and other.heads <= option.heads
            and other.time <= option.time
            for other in same
        ):
            same.append(option)
    return sorted((option for same in kept.values() for option in same), key=cheapest_first)


def cheapest_first(option: Option) -> tuple[float, ...]:
    """The sort key of options: price first, then costs."""
    return option.price, option.cache, option.parameters, option.heads, option.time


def spelled(shares: Mapping[str, float]) -> str:
    """Shares of costs as text: ``cache=0.5 parameters=0.8``."""
    return " ".join(f"{resource}={share:g}" for resource, share in shares.items())
