"""Statistics of feed-forward blocks, from the pass that collects those of the attentions.

    C     = Cov_t h_t                    what fc2 reads
    Delta = 1/N sum_t G_t^T G_t          price of a change of its output, G_t = dL/do_t

``L`` and N are those of :mod:`.statistics`.  A unit is removed like a head: :mod:`.removal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.metrics.loss import predicted, read_by_decoder, summed_loss
from collab_lab.pricing.statistics import at_least_float32, ridged
from collab_lab.trained.checkpoint import Trained, in_evaluation
from collab_lab.trained.feed_forward import FeedForward, recorded


@dataclass(frozen=True)
class UnitStatistics:
    """Statistics of a feed-forward block with ``F`` units.

    Attributes:
        covariance: of the units, ``C (F, F)``.
        output_fisher: Fisher information of the output, ``Delta (d, d)``.
    """

    covariance: Tensor
    output_fisher: Tensor

    def ridged(self) -> UnitStatistics:
        """With :data:`.statistics.RIDGE` on both."""
        return UnitStatistics(ridged(self.covariance), ridged(self.output_fisher))


class UnitSums:
    """Running sums of the statistics of one block, in double precision."""

    def __init__(self) -> None:
        self.tokens = 0
        self.shift: Tensor | None = None
        self.sums: dict[str, Tensor] = {}

    def add(self, h: Tensor, not_padding: Tensor, gradient: Tensor) -> None:
        """Count a batch: ``h (T, B, F)``, ``not_padding (T, B)``, ``gradient (T, B, d)``."""
        h, gradient = h[not_padding], gradient[not_padding]
        if self.shift is None:  # see Sums._shifted
            self.shift = h.mean(0)
        h = h - self.shift
        self.tokens += len(h)
        for name, value in {"h": h.sum(0), "hh": h.T @ h, "gg": gradient.T @ gradient}.items():
            self.sums[name] = value.double() + self.sums.get(name, 0.0)

    def result(self, num_targets: int, where: Any = None) -> UnitStatistics:
        """The statistics, for ``num_targets`` target tokens; UserError if one is not finite."""
        mean = self.sums["h"] / self.tokens
        covariance = self.sums["hh"] / self.tokens - torch.outer(mean, mean)
        result = UnitStatistics(covariance, self.sums["gg"] / num_targets)
        if not all(torch.isfinite(value).all() for value in vars(result).values()):
            raise UserError("statistics of its feed-forward blocks hold NaN or infinity", where)
        return result


def collect_units(
    trained: Trained, batches: Sequence[dict[str, Any]], seed: int = 1
) -> dict[FeedForward, UnitStatistics]:
    """Statistics of all feed-forward blocks; ``seed`` determines the labels."""
    model, generator = trained.model, torch.Generator(trained.device).manual_seed(seed)
    padding, num_targets = trained.task.source_dictionary.pad(), 0
    sums: dict[FeedForward, UnitSums] = {}
    with in_evaluation(model), at_least_float32(model), recorded(model) as calls:
        for batch in bar("units", batches):
            calls.clear()
            with torch.enable_grad():
                loss = summed_loss(model, batch, generator)
            outputs = [output for _, output in calls.values()]
            gradients = torch.autograd.grad(
                loss, outputs, allow_unused=True, materialize_grads=True
            )
            for (block, (h, _)), gradient in zip(calls.items(), gradients, strict=True):
                is_encoder = block.side == "encoder"
                tokens = batch["net_input"]["src_tokens"] if is_encoder else read_by_decoder(batch)
                sums.setdefault(block, UnitSums()).add(h, tokens.ne(padding).T, gradient)
            num_targets += int(predicted(model.decoder, batch["target"]).sum())
    return {block: total.result(num_targets, trained.path) for block, total in sums.items()}
