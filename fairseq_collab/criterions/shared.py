"""What losses beside a model's own have in common: the checks of their options, and their log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fairseq import metrics
from fairseq.criterions import FairseqCriterion

from collab_common.errors import UserError

#: What a loss is normalised like: the paper, or its released code.
NORMALISATIONS = ("paper", "released")


def check_weight(option: str, value: float) -> None:
    """Refuse a weight of a loss below 0, or NaN; raises UserError."""
    if not value >= 0:
        raise UserError(f"is {value}; it must be 0 or more", where=option)


def check_normalisation(option: str, value: str) -> None:
    """Refuse what is none of :data:`NORMALISATIONS`; raises UserError."""
    if value not in NORMALISATIONS:
        raise UserError(
            f"is {value!r}; it must be one of {', '.join(NORMALISATIONS)}", where=option
        )


class LogsMeans(FairseqCriterion):
    """Adds means over training batches to the log of the criterion next in the order of classes."""

    #: What is logged, as far as it is there: outputs have sums over batches.
    logged: ClassVar[tuple[str, ...]]
    #: Under which outputs have their number of batches of training.
    count: ClassVar[str]
    #: After the point.
    digits: ClassVar[int]

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        super().reduce_metrics(logging_outputs)
        batches = sum(log.get(cls.count, 0) for log in logging_outputs)
        if batches:
            for name in (name for name in cls.logged if name in logging_outputs[0]):
                total = sum(log[name] for log in logging_outputs)
                metrics.log_scalar(name, total / batches, batches, round=cls.digits)
