"""A plan: a shape for every site of a model, its price, its costs, and the smaller model.

    plan = least price of one shape a site, under budgets of cache, parameters, heads and time

:func:`propose` finds one by an integer programme (:mod:`.solve`) over what cuts offer.
:meth:`Plan.apply` has the cuts change a draft, builds it, and refits all blocks in the order of
data (:mod:`collab_lab.mathematics.refit`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.mathematics.rise import measured_rise
from collab_lab.shrinking.cut import ANY_BITS, Cut, Offer, Tie, reject
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.one_copy import OneCopy
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.cuts.units import Units
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.engine import ENGINES
from collab_lab.shrinking.evidence import Evidence
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
from collab_lab.shrinking.solve import Together, cheapest
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards

#: What a budget can be of.
RESOURCES = ("cache", "parameters", "heads", "time")
#: Cuts of the cache by the names of ``--kinds``, next to rounding; unchanged: heads as they are.
KINDS: dict[str, tuple[type[Cut], ...]] = {
    "latent": (Latent, OneCopy),
    "unchanged": (),
    "grouped-query": (GroupedQuery,),
    "collab": (SharedKey,),
}
#: Parts of the whole in which times are counted.
MILLION = 1_000_000


class Times(Protocol):
    """What shapes take in the engine where the model will run, as shares of the given model's.

    Attributes:
        engine: of :data:`.engine.ENGINES`.
        uncut: time of the model in which nothing is cut; not 1 where fairseq's own attention
            becomes this project's.
    """

    @property
    def engine(self) -> str: ...

    @property
    def uncut(self) -> float: ...

    def change(self, site: Site, shape: Shape) -> float:
        """What a shape adds to the time of the uncut model; below 0 where it saves some."""


class Allowed(NamedTuple):
    """What a plan may cut.

    Attributes:
        parts: of sites: heads, units, cache.
        kinds: of heads for a smaller cache, of :data:`KINDS` and of ``own``; None: the engine's.
        bits: that a number of a smaller cache may have; 0: no rounding.
        engine: of :data:`.engine.ENGINES`.
        times: measured, where there is a share of the time.
        own: cuts of the user, in place of this project's of the same part.
    """

    parts: tuple[str, ...] = PARTS
    kinds: tuple[str, ...] | None = None
    bits: tuple[int, ...] = ANY_BITS
    engine: str = "fairseq"
    times: Times | None = None
    own: tuple[Cut, ...] = ()

    def candidates(self) -> dict[str, list[Cut]]:
        """By kind of heads for the cache, the cuts of a plan; without the cache a single one."""
        engine, own = ENGINES[self.engine], {cut.name: cut for cut in self.own}
        cuts: list[Cut] = [Heads(engine.even), Units(engine.multiple)]
        replaced = {cut.part for cut in self.own} - {"cache"}
        cuts = [cut for cut in cuts if cut.part in self.parts and cut.part not in replaced]
        cuts += [cut for cut in self.own if cut.part in self.parts and cut.part != "cache"]
        if "cache" not in self.parts:
            return {"unchanged": cuts}
        of_cache = tuple(cut.name for cut in self.own if cut.part == "cache")
        kinds = self.kinds or of_cache or engine.kinds
        return {
            kind: [*cuts, Bits(), *([own[kind]] if kind in own else [c() for c in KINDS[kind]])]
            for kind in kinds
        }


#: Whatever this project cuts.
ANYTHING = Allowed()

# ---- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What stays of a trained model.

    Attributes:
        kind: of heads: ``unchanged``, or another one of :data:`KINDS`.
        shapes: of all sites.
        cuts: what gives sites their shapes; each with the sites whose shapes it offered.
        prices: predicted loss in bits per target token: of heads, units and caches.
        costs: of the smaller model, and ``whole``, that shares are of: cache (bits per token),
            parameters (of all layers), heads.
        time: predicted share of the given model's seconds, where times were measured.
        of_sites: prices of caches by attention, as they are applied.
    """

    kind: str
    shapes: Mapping[Site, Shape]
    cuts: Sequence[tuple[Cut, Sequence[Site]]] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, int] = field(default_factory=dict)
    whole: Mapping[str, int] = field(default_factory=dict)
    time: float | None = None
    of_sites: Mapping[Site, float] = field(default_factory=dict)

    @property
    def price(self) -> float:
        """The predicted loss in bits per target token."""
        return sum(self.prices.values())

    @property
    def attentions(self) -> dict[Attention, Shape]:
        """The shapes of attentions."""
        return {a: shape for a, shape in self.shapes.items() if isinstance(a, Attention)}

    @property
    def retained(self) -> dict[Any, list[list[int]]]:
        """The heads that stay, by attention type and layer."""
        result: dict[Any, list[list[int]]] = {type_: [] for type_ in ATTENTION_TYPES}
        for attention, shape in self.attentions.items():
            result[attention.type].append([*shape.heads])
        return result

    @property
    def units(self) -> dict[FeedForward, list[int]]:
        """The units that stay of the blocks that lose some."""
        return {
            block: [*shape.units]
            for block, shape in self.shapes.items()
            if isinstance(block, FeedForward) and len(shape.units) < block.width
        }

    @property
    def sizes(self) -> dict[Attention, int]:
        """The sizes of attentions with another kind of heads."""
        return {a: shape.size for a, shape in self.attentions.items() if shape.size}

    @property
    def bits(self) -> dict[Attention, int]:
        """The bits of the KV caches that are rounded."""
        return {a: shape.bits for a, shape in self.attentions.items() if shape.bits}

    @property
    def shared(self) -> bool:
        """Whether all cross-attentions get one latent, cached once."""
        return any(shape.copy and shape.kind is not None for shape in self.shapes.values())

    @property
    def size_name(self) -> str:
        """What a size is called: ``latent width``."""
        kinds = (shape.kind for shape in self.shapes.values() if shape.kind is not None)
        return next((kind.size_name for kind in kinds), "")

    def __repr__(self) -> str:
        heads = sum(len(shape.heads) for shape in self.shapes.values())
        cut = [f"{heads} heads", *(f"{b}: {len(u)} units" for b, u in self.units.items())]
        cut += [f"{a}: {self.size_name} {size}" for a, size in self.sizes.items()]
        few = f"{', '.join(cut[:4])}{', ...' * (len(cut) > 4)}"
        return f"plan, price: {self.price:.4f} bits per target token\n{few}"

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and names, as the new checkpoint stores them."""
        return {
            "kind": self.kind,
            "heads": self.retained,
            "units": {str(block): units for block, units in self.units.items()},
            "sizes": {str(a): size for a, size in self.sizes.items()},
            "bits": {str(a): bits for a, bits in self.bits.items()},
            "prices": dict(self.prices),
            "costs": dict(self.costs),
            "whole": dict(self.whole),
            "time": self.time,
            "shared": self.shared,
        }

    def table(self) -> list[list[Any]]:
        """A row per site that loses something: what stays of how much; its size; its bits."""
        rows: list[list[Any]] = []
        for site, shape in self.shapes.items():
            width = width_of(site)
            what = "heads" if isinstance(site, Attention) else "units"
            if shape.width < width or shape.size or shape.bits:
                size: Any = shape.size or None
                size = f"{size}, shared" if size and shape.copy else size
                row = [str(site), f"{shape.width} of {width} {what}", size, shape.bits or None]
                rows.append(row)
        return rows

    def draft(self, evidence: Evidence) -> tuple[Draft, dict[Site, float]]:
        """The draft of the smaller model, and prices of sites where heads that stay change them."""
        draft, prices = Draft(evidence.trained, evidence.attentions), dict[Site, float]()
        for part in PARTS:
            for cut, sites in self.cuts:
                if cut.part == part:
                    shapes = {site: self.shapes[site] for site in sites}
                    found = cut.apply_all(draft, shapes) if shapes else {}
                    prices |= found if part == "cache" else {}
        return draft, prices

    def build(self, evidence: Evidence) -> tuple[Trained, Plan]:
        """The smaller model before the refit, and the plan with the price of its cache."""
        draft, prices = self.draft(evidence)
        plan = self
        if prices:
            total = {**self.prices, "cache": sum(prices.values())}
            plan = replace(self, prices=total, of_sites=prices)
        return draft.build(), plan

    def apply(self, evidence: Evidence, fit: bool = True) -> tuple[Trained, Plan, float]:
        """The smaller model, refitted; the plan; the measured rise on the calibration sentences.

        Args:
            fit: whether to refit.
        """
        model, plan = self.build(evidence)
        price = plan.price if plan.prices else None
        rise = measured_rise(
            model, evidence.trained, evidence.batches, price, fit=fit, before=evidence.bits
        )
        return model, plan, rise


# ---- the cheapest plan ---------------------------------------------------------------------------


class OutOfReachError(UserError):
    """No plan leaves so little.

    Attributes:
        least: share of each resource that some plan leaves, whatever it leaves of the others.
    """

    least: Mapping[str, float]

    @classmethod
    def of(
        cls,
        shares: Mapping[str, float],
        leasts: Iterable[Mapping[str, float]],
        where: Any = None,
        reasons: Iterable[str] = (),
    ) -> OutOfReachError:
        """The error of these targets.

        Args:
            leasts: of several kinds of plans, each of which would do.
            reasons: against other kinds.
        """
        listed = [*leasts]
        least = {name: min(one[name] for one in listed) for name in shares}
        each = " of each, whatever the others are," if len(shares) > 1 else ""
        todo = "; ".join([f"the least{each} is {spelled(least)}", *reasons])
        error = cls(f"cannot have {spelled(shares)}", where, todo)
        error.least = least
        return error


def propose(evidence: Evidence, shares: Mapping[str, float], allowed: Allowed = ANYTHING) -> Plan:
    """The plan of least price that leaves at most these shares of the model's costs.

    Args:
        shares: of cache, parameters, heads: see :func:`.shape.whole_costs`; of the model's time.

    Raises:
        OutOfReachError: no plan is within the budgets.
        UserError: the model cannot be cut so.
    """
    plans, reasons, leasts = list[Plan](), list[str](), list[Mapping[str, float]]()
    for kind, cuts in allowed.candidates().items():
        try:
            plans.append(Programme(evidence, kind, cuts, allowed).solve(shares))
        except OutOfReachError as error:
            leasts.append(error.least)
        except UserError as error:
            reasons.append(f"{kind}: {'; '.join(filter(None, (error.problem, error.todo)))}")
    if not plans and leasts:
        raise OutOfReachError.of(shares, leasts, evidence.trained.path, reasons)
    if not plans:
        problem = f"cannot have {spelled(shares)}"
        raise UserError(problem, evidence.trained.path, "; ".join(reasons))
    return min(plans, key=lambda plan: plan.price)


class Choice(NamedTuple):
    """What is chosen for a part of a site: an offer, and the cut that makes it, if any."""

    part: str
    cut: Cut | None
    offer: Offer


class Option(NamedTuple):
    """A shape of a site: its price, its costs, and what is chosen for each part.

    Attributes:
        time: what it adds to the seconds of the uncut model, in millionths of those of the given
            model (below 0 where it saves some).
    """

    shape: Shape
    price: float
    cache: int
    parameters: int
    heads: int
    time: int = 0
    choices: tuple[Choice, ...] = ()


class Programme:
    """The options of all sites of a model with some cuts."""

    def __init__(
        self, evidence: Evidence, kind: str, cuts: Sequence[Cut], allowed: Allowed = ANYTHING
    ):
        trained, self.times = evidence.trained, allowed.times
        reject(trained, cuts, "cannot be cut so")
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
        """The offers for a part of a site; without any, that it stays as it is."""
        cuts = [cut for cut in self.cuts if cut.part == part]
        if part == "cache" and (isinstance(site, FeedForward) or site.type == "encoder"):
            cuts = []  # nothing is cached
        found = [Choice(part, cut, offer) for cut in cuts for offer in cut.offers(site, evidence)]
        if part == "cache":
            others = {*ANY_BITS} - {*allowed.bits}  # of a user's cut, other numbers stay
            found = [c for c in found if c.offer.shape.bits not in others]
        return found or [Choice(part, None, Offer(as_it_is(site), 0.0))]

    def _option(self, site: Site, shape: Shape, choices: Sequence[Choice]) -> Option:
        price = sum(choice.offer.price for choice in choices)
        time = 0 if self.times is None else round(MILLION * self.times.change(site, shape))
        return Option(shape, price, *costs(site, shape), time, tuple(choices))

    def solve(self, shares: Mapping[str, float], exactly: Mapping[str, int] | None = None) -> Plan:
        """The cheapest plan within the budgets; OutOfReachError if there is none.

        Args:
            exactly: costs that a plan has to have.
        """
        if unknown := sorted({*shares} - {*RESOURCES}):
            raise UserError(f"{unknown[0]!r} must be one of {', '.join(RESOURCES)}")
        budgets = {
            name: int(share * self.whole[name] + 1e-6) - self._fixed(name)
            for name, share in shares.items()
        }
        sums = {name: number - self._fixed(name) for name, number in (exactly or {}).items()}
        chosen = cheapest(self.options, budgets, self._together(), exactly=sums)
        if chosen is None:
            raise OutOfReachError.of(shares, [{name: self._least(name) for name in shares}])
        return self._plan(chosen)

    def _together(self) -> list[Together]:
        """Sites whose shapes must agree."""
        return [Together(tie.sites, partial(_tied, tie)) for tie in self.ties]

    def _fixed(self, name: str) -> int:
        """The cost of what has no options."""
        if name == "time":
            return self.costs[name]
        return self.costs[name] - sum(
            getattr(costs(site, as_it_is(site)), name) for site in self.options
        )

    def fewest(self, name: str) -> int:
        """The least that a plan can cost, whatever else it costs."""
        alone = {
            site: [option._replace(price=float(getattr(option, name))) for option in of]
            for site, of in self.options.items()
        }
        least = cheapest(alone, {}, self._together())
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
        for site, option in chosen.items():
            for part, cut, offer in option.choices:
                prices[part] += offer.price
                if cut is not None:
                    sites[cut].append(site)
        total = {
            name: self._fixed(name) + sum(getattr(option, name) for option in chosen.values())
            for name in self.whole
        }
        whole = dict(self.whole)
        time = total.pop("time") / whole.pop("time") if self.times is not None else None
        cuts = [(cut, sites[cut]) for cut in self.cuts]
        return Plan(self.kind, shapes, cuts, prices, total, whole, time)


def _tied(tie: Tie, option: Option) -> Hashable | None:
    return tie.of(option.shape)


def undominated(
    options: Sequence[Option], tied: Sequence[Callable[[Shape], Hashable | None]] = ()
) -> list[Option]:
    """The options that no other one beats in price and all costs.

    Args:
        tied: values in which sites have to agree: the best of each value is left, as it may be the
            best in all sites together.
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
    """The order of options: by price, then by costs."""
    return option.price, option.cache, option.parameters, option.heads, option.time


def spelled(shares: Mapping[str, float]) -> str:
    """Shares of costs: ``cache=0.5 parameters=0.8``."""
    return " ".join(f"{resource}={share:g}" for resource, share in shares.items())
