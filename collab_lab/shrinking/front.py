"""The prices of plans of several sizes, which ``shrink`` without ``--out`` prints and draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from collab_common.errors import UserError
from collab_common.progress import say
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.apply import drafted
from collab_lab.shrinking.cut import ANY_BITS, Cut
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.knapsack import OutOfTimeError
from collab_lab.shrinking.plan import Allowed, Plan
from collab_lab.shrinking.planner import propose
from collab_lab.shrinking.shrink import cheapest_model, chosen_parts

#: Shares of the front: of the layers' parameters, of the KV cache, of both.
FRONT: tuple[dict[str, float], ...] = (
    *({"parameters": share} for share in (0.9, 0.8, 0.7, 0.6, 0.5)),
    *({"cache": share} for share in (0.53125, 0.25, 0.125, 0.0625)),
    {"cache": 0.125, "parameters": 0.7},
)
#: By resource, series of a figure: what a plan may cut, and how.
SERIES: dict[str, dict[str, Allowed]] = {
    "parameters": {
        "heads and units": Allowed(("heads", "units")),
        "only heads removed": Allowed(("heads",)),
        "only units removed": Allowed(("units",)),
    },
    "cache": {
        "latent, widths and bits": Allowed(("cache",), ("latent",), ANY_BITS),
        "grouped query": Allowed(("cache",), ("grouped-query",), (0,)),
        "standard heads, only bits": Allowed(("cache",), ("unchanged",), ANY_BITS),
    },
}


class PlanAt(NamedTuple):
    """A plan of the front.

    Attributes:
        plan: None where no plan leaves so little; ``reason`` then says why.
        lost: measured on the validation set, in bits per target token, if it was.
    """

    shares: Mapping[str, float]
    plan: Plan | None
    lost: float | None = None
    reason: str = ""


def front(
    evidence: Evidence,
    kinds: Sequence[str] | None = None,
    own: Sequence[Cut] = (),
    valid: Sequence[Mapping[str, Any]] = (),
) -> Iterator[PlanAt]:
    """The cheapest plans at the shares of :data:`FRONT`.

    Args:
        kinds: of heads for a smaller cache; default: those of ``shrink``.
        own: cuts of the user.
        valid: sentences of the validation set, if the smaller models are to be made and measured.
    """
    before = mean_bits(evidence.trained.model, valid) if valid else 0.0
    for shares in FRONT:
        parts = chosen_parts(shares, None, None)
        allowed = Allowed(parts, None if kinds is None else tuple(kinds), own=tuple(own))
        try:
            if valid:
                made = cheapest_model(evidence, shares, allowed)
                yield PlanAt(shares, made.plan, mean_bits(made.model.model, valid) - before)
            else:
                yield PlanAt(shares, priced(evidence, shares, allowed))
        except OutOfTimeError:
            raise  # there may be a plan
        except UserError as error:
            yield PlanAt(shares, None, reason=error.todo or error.problem)


def priced(evidence: Evidence, shares: Mapping[str, float], allowed: Allowed) -> Plan:
    """The cheapest plan, with the price that ``shrink --out`` prints for it."""
    return drafted(evidence, propose(evidence, shares, allowed))[1]


def series(
    evidence: Evidence, kinds: Sequence[str] | None = None, own: Sequence[Cut] = ()
) -> dict[str, dict[str, dict[float, list[float]]]]:
    """Compute the prices of plans, by resource, by name of the series, and by share that is left.

    The shares are those of :data:`FRONT`; a share that no plan reaches is left out, and a line says
    which series has none.

    Args:
        kinds: kinds of heads for a smaller cache, one series each, instead of :data:`SERIES`.
        own: cuts of the user; those of the cache are the default of ``kinds``.
    """
    result: dict[str, dict[str, dict[float, list[float]]]] = {}
    kinds = kinds or [cut.name for cut in own if cut.part == "cache"]
    of_kinds = {kind: Allowed(("cache",), (kind,)) for kind in kinds}
    for resource, every in (SERIES | ({"cache": of_kinds} if of_kinds else {})).items():
        shares = [one[resource] for one in FRONT if one.keys() == {resource}]
        for name, allowed in every.items():
            allowed = allowed._replace(own=tuple(own))
            prices, reason = dict[float, list[float]](), ""
            for share in shares:
                try:
                    prices[share] = [priced(evidence, {resource: share}, allowed).price]
                except OutOfTimeError:
                    raise  # there may be a plan
                except UserError as error:  # no plan is so small, or no cut fits
                    reason = error.todo or error.problem
            if prices:
                result.setdefault(resource, {})[name] = prices
            else:
                say(f"the figure has no curve of {name}: not possible ({reason})")
    return result
