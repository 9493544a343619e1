"""The result of every cut: the smaller model, with its predicted and its measured loss."""

from __future__ import annotations

from typing import NamedTuple

from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.plan import Plan
from collab_lab.shrinking.shape import shares_left
from collab_lab.trained.checkpoint import Trained


class Smaller(NamedTuple):
    """A smaller model.

    Attributes:
        plan: what the model keeps, with the predicted loss.
        rise: measured rise of the loss on the calibration sentences, in bits per target token.
        shares: what is left of the given model's cache (relative to 16-bit numbers), layers'
            parameters and heads; if times were measured, also the predicted share of its time.
        lost: measured rise of the loss on the validation set, in bits per target token; None
            unless the target was ``lose``, which limits it.
    """

    model: Trained
    plan: Plan
    rise: float
    shares: dict[str, float]
    lost: float | None = None

    @classmethod
    def of(cls, evidence: Evidence, plan: Plan, fit: bool = True) -> Smaller:
        """Apply a plan.

        Args:
            fit: whether to refit.
        """
        smaller, plan, rise = plan.apply(evidence, fit)
        shares = shares_left(smaller, evidence.trained)
        if smaller.is_simulated and plan.costs:  # it does not have what the plan counts
            shares = {name: plan.costs[name] / plan.whole[name] for name in plan.whole}
        if plan.time is not None:
            shares["time"] = plan.time
        return cls(smaller.in_precision_of_source(), plan, rise, shares)

    @property
    def price(self) -> float | None:
        """The predicted loss in bits per target token; None if nothing was predicted."""
        return self.plan.price if self.plan.prices else None

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        price, kept = repr(self.plan).splitlines()
        return f"{self.model.arch}, {shares}; {price}, rise: {self.rise:.4f}\n{kept}"
