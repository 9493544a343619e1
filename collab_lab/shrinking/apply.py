"""From a plan to a smaller model, step by step."""

from __future__ import annotations

from dataclasses import replace

from collab_lab.refitting.refit import refit_if_better
from collab_lab.refitting.rise import measured_rise
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.plan import Plan
from collab_lab.shrinking.shape import PARTS, shares_left
from collab_lab.shrinking.smaller import Smaller
from collab_lab.trained.checkpoint import Trained


def apply_plan(evidence: Evidence, plan: Plan, fit: bool = True) -> Smaller:
    """Cut, build, refit and measure the smaller model of a plan, and count its costs.

    Args:
        fit: whether to refit all blocks, in the order of data (:mod:`collab_lab.refitting.refit`).
    """
    trained, batches = evidence.trained, evidence.batches
    model, plan = apply_cuts(evidence, plan)
    after = refit_if_better(model, trained, batches) if fit else None
    model = model.in_precision_of_source()
    if model.saved_in is not None:  # what is measured is what the file will have
        after = None
    price = plan.price if plan.prices else None
    rise = measured_rise(model, trained, batches, price, before=evidence.bits, after=after)
    shares = shares_of(model, trained, plan)
    return Smaller(model, plan, rise, shares)


def apply_cuts(evidence: Evidence, plan: Plan) -> tuple[Trained, Plan]:
    """The smaller model before the refit, and the plan as :func:`drafted` prices it."""
    draft, plan = drafted(evidence, plan)
    return draft.build(), plan


def drafted(evidence: Evidence, plan: Plan) -> tuple[Draft, Plan]:
    """The draft that all cuts have changed, and the plan with the price of its cache.

    Heads that stay change the prices of new ones.
    """
    draft, prices = Draft(evidence.trained, evidence.attentions), dict(plan.of_sites)
    for part in PARTS:
        for cut, sites in plan.cuts:
            if cut.part == part and sites:
                found = cut.apply_all(draft, {site: plan.shapes[site] for site in sites})
                prices |= found if part == "cache" else {}
    if prices:
        total = {**plan.prices, "cache": sum(prices.values())}
        plan = replace(plan, prices=total, of_sites=prices)
    return draft, plan


def shares_of(model: Trained, trained: Trained, plan: Plan) -> dict[str, float]:
    """Shares of the trained model that are left: of what a model has, and of predicted time."""
    shares = shares_left(model, trained)
    if model.is_simulated and plan.costs:  # it does not have what the plan counts
        shares = {name: plan.costs[name] / plan.whole[name] for name in plan.whole}
    return shares if plan.time is None else {**shares, "time": plan.time}
