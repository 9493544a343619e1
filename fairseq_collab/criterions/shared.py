"""What losses beside a model's own have in common: the checks of their options, and their log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq import metrics

from collab_common.errors import UserError

#: What a loss is normalised like: the paper, or its released code.
NORMALISATIONS = ("paper", "released")


def check_weight(option: str, value: float) -> None:
    """Refuse a weight of a loss below 0, or NaN.

    Raises:
        UserError: names the option.
    """
    if not value >= 0:
        raise UserError(f"is {value}; it must be 0 or more", where=option)


def check_normalisation(option: str, value: str) -> None:
    """Refuse what is none of :data:`NORMALISATIONS`.

    Raises:
        UserError: names the option.
    """
    if value not in NORMALISATIONS:
        raise UserError(
            f"is {value!r}; it must be one of {', '.join(NORMALISATIONS)}", where=option
        )


def log_means(
    outputs: Sequence[dict[str, Any]], names: Sequence[str], count: str, digits: int
) -> None:
    """Log means over training batches; nothing where no batch was one of training.

    Args:
        outputs: of fairseq's criterion contract, with sums over batches.
        names: what is logged, as far as it is there.
        count: under which the outputs have their number of batches.
        digits: after the point.
    """
    batches = sum(log.get(count, 0) for log in outputs)
    if batches:
        for name in (name for name in names if name in outputs[0]):
            total = sum(log[name] for log in outputs)
            metrics.log_scalar(name, total / batches, batches, round=digits)
