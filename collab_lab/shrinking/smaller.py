"""The result of every cut: the smaller model, with its predicted and its measured loss."""

from __future__ import annotations

from typing import NamedTuple

from collab_lab.shrinking.plan import Plan
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

    @property
    def price(self) -> float | None:
        """The predicted loss in bits per target token; None if nothing was predicted."""
        return self.plan.price if self.plan.prices else None

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        price, kept = repr(self.plan).splitlines()
        return f"{self.model.arch}, {shares}; {price}, rise: {self.rise:.4f}\n{kept}"
