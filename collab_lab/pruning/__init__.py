"""Votes and choices become a smaller checkpoint."""

from __future__ import annotations

from typing import Any

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError, reject_unused


def check_arguments(**given: Any) -> None:
    """Raise UserError for arguments of :func:`collab_lab.prune` that have no effect together."""

    def reject(reason: str, *names: str) -> None:
        reject_unused(reason, **{name: given.get(name) for name in names})

    given["same_on_each_side"] = given["same_on_each_side"] or None
    if given["same_on_each_side"] is not None:
        reject("contradicts --same-on-each-side", "keep", "types")
    if given["retained"] is not None:
        reason = "needs a choice by price or --random"
        reject(reason, "number", "keep", "types", "random", "same_on_each_side")
    elif given["keep"] is not None:
        reject("has no effect with --keep", "number")
    elif given["number"] is None:
        todo = "give a number of heads: --remove-share, --as-many-as or --keep"
        raise UserError("no heads are chosen", todo=todo)
    if not given["retained"] is given["random"] is None:
        reject("is of the choice by price", "statistics")
    types = given["types"]
    if types is not None and not 0 < len({*types} & {*ATTENTION_TYPES}) == len({*types}):
        raise UserError(f"{types!r} are not some of {', '.join(ATTENTION_TYPES)}", "--types")
