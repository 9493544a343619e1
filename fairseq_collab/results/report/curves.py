"""Learning curves: the validation loss of a run, from fairseq's log."""

from __future__ import annotations

import math

from fairseq_collab.runs.fairseq_output import entries
from fairseq_collab.runs.run import Run

#: Negative log-likelihood of a target token, in bits: without label smoothing and penalties.
FIELD = "valid_nll_loss"


def curve(run: Run) -> list[list[float]]:
    """[updates, validation loss in bits a token] of every validation; [] where no log tells.

    A training that was interrupted validates some updates again: the last time counts.

    Raises:
        UserError: the log cannot be read.
    """
    points: dict[int, float] = {}
    for found in entries(run.log, "valid"):
        if FIELD in found and "valid_num_updates" in found:
            points[int(found["valid_num_updates"])] = float(found[FIELD])
    return [[updates, loss] for updates, loss in sorted(points.items()) if math.isfinite(loss)]


def still_falling(points: list[list[float]]) -> bool | None:
    """Whether the last validation was the best one; None for fewer than two."""
    if len(points) < 2:
        return None
    return points[-1][1] <= min(loss for _, loss in points)
