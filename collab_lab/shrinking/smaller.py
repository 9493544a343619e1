"""A smaller model: what every cut makes, next to what it was predicted and measured to lose."""

from __future__ import annotations

from typing import NamedTuple

from collab_lab.shrinking.plan import Plan
from collab_lab.trained.checkpoint import Trained


class Smaller(NamedTuple):
    """A smaller model.

    Attributes:
        plan: what it keeps, with the predicted loss.
        rise: measured on the calibration sentences, in bits per target token.
        shares: of the given model's cache (16-bit numbers), layers' parameters and heads; of its
            time as predicted, where times were measured.
        lost: measured on the validation set, in bits per target token; None without ``lose``,
            which limits it.
    """

    model: Trained
    plan: Plan
    rise: float
    shares: dict[str, float]
    lost: float | None = None

    @property
    def price(self) -> float | None:
        """The predicted loss in bits per target token; None where nothing was predicted."""
        return self.plan.price if self.plan.prices else None

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        price, kept = repr(self.plan).splitlines()
        return f"{self.model.arch}, {shares}; {price}, rise: {self.rise:.4f}\n{kept}"
