"""Shared by losses beside the model's own: the check of a weight, means in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fairseq import metrics
from fairseq.criterions import FairseqCriterion

from collab_common.errors import UserError


def check_weight(option: str, value: float) -> None:
    """Raise UserError for a weight of a loss below 0, or NaN."""
    if not value >= 0:
        raise UserError(f"is {value}; it must be 0 or more", where=option)


class LogsMeans(FairseqCriterion):
    """Adds means over training batches to the log of the next criterion class."""

    #: Names in the log; outputs hold sums over batches.
    logged: ClassVar[tuple[str, ...]]
    #: The name under which outputs hold their number of training batches.
    count: ClassVar[str]
    #: Digits after the point.
    digits: ClassVar[int]

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        super().reduce_metrics(logging_outputs)
        batches = sum(log.get(cls.count, 0) for log in logging_outputs)
        if batches:
            for name in (name for name in cls.logged if name in logging_outputs[0]):
                total = sum(log[name] for log in logging_outputs)
                metrics.log_scalar(name, total / batches, batches, round=cls.digits)
