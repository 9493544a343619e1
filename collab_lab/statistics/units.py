"""Statistics of feed-forward blocks, collected in the same pass as those of the attentions.

    C     = Cov_t h_t                    what fc2 reads
    Delta = 1/N sum_t G_t^T G_t          price of a change of its output, G_t = dL/do_t

``L`` and N are those of :mod:`collab_lab.statistics.moments`.  A unit is removed like a head:
:mod:`collab_lab.mathematics.removal`.

The order of removal starts from the inverse of C, so that all of this symmetric matrix is needed.
One half is kept, 0.28 GB at 8,192 units, and the full matrix is built for one block at a time.  The
refit collects its own second moments, of the units that stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_lab.statistics.gram import gram, mirrored, upper


@dataclass(frozen=True)
class UnitStatistics:
    """Statistics of one feed-forward block with ``F`` units.

    Attributes:
        half: of the covariance: see :func:`.gram.upper`.
        output_fisher: Fisher information of the output, ``Delta (d, d)``.
    """

    half: Tensor
    output_fisher: Tensor

    @property
    def covariance(self) -> Tensor:
        """The covariance of the units, ``C (F, F)``, built at every call."""
        return mirrored(self.half)


class UnitSums:
    """Running sums of the statistics of one block, in double precision."""

    def __init__(self) -> None:
        self.tokens = 0
        self.shift: Tensor | None = None
        self.sums: dict[str, Tensor] = {}

    def add(self, h: Tensor, not_padding: Tensor, gradient: Tensor) -> None:
        """Add a batch: ``h (T, B, F)``, ``not_padding (T, B)``, ``gradient (T, B, d)``."""
        h, gradient = h[not_padding], gradient[not_padding]
        if self.shift is None:  # see Sums._shifted
            self.shift = h.mean(0)
        h = h - self.shift
        self.tokens += len(h)
        for name, value in {"h": h.sum(0), "hh": upper(h, h), "gg": gram(gradient)}.items():
            self.sums[name] = value.double() + self.sums.get(name, 0.0)

    def result(self, num_targets: int, where: Any = None) -> UnitStatistics:
        """The statistics per target token, of ``num_targets``; UserError if one is not finite."""
        mean = self.sums["h"][None] / self.tokens
        half = self.sums["hh"] / self.tokens - upper(mean, mean)
        result = UnitStatistics(half, self.sums["gg"] / num_targets)
        if not all(torch.isfinite(value).all() for value in vars(result).values()):
            raise UserError("statistics of its feed-forward blocks hold NaN or infinity", where)
        return result
