"""Votes and choices become a smaller checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError, reject_unused


def check_arguments(
    *,
    number: object = None,
    keep: object = None,
    retained: object = None,
    types: Sequence[str] | None = None,
    importances: object = None,
    statistics: object = None,
    subset: object = None,
    sentences: object = None,
) -> None:
    """Raise UserError for arguments of :func:`collab_lab.prune` that have no effect together."""
    if retained is not None:
        reason = "needs a choice by price, --importance or --random"
        reject_unused(reason, number=number, keep=keep, types=types, importances=importances)
    elif number is None and keep is None:
        todo = "give a number of heads: --remove-share, --as-many-as or --keep"
        raise UserError("no heads are chosen", todo=todo)
    elif keep is not None:
        reject_unused("has no effect with --keep", number=number)
    if retained is not None or importances is not None:
        of_the_pass = {"statistics": statistics, "subset": subset, "sentences": sentences}
        reject_unused("is of the choice by price", **of_the_pass)
    if types is not None and not 0 < len({*types} & {*ATTENTION_TYPES}) == len({*types}):
        raise UserError(f"{types!r} are not some of {', '.join(ATTENTION_TYPES)}", "--types")
