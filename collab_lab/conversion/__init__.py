"""Trained heads become heads that share: collaborative, grouped-query, latent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError, reject_unused

#: The size that each kind of heads has, by the values of ``--to``: options and commands read it,
#: and importing it imports nothing.
SIZES = {
    "collab": "key_dim",
    "headsize": "key_dim",
    "grouped-query": "key_value_heads",
    "latent": "latent_dim",
}
#: What a share can be of, as :func:`.cost.totals` names it.
RESOURCES = ("cache", "parameters", "multiply-adds")


def check_arguments(
    to: str,
    size: int | None,
    by_type: Mapping[Any, int | str | None],
    shares: Mapping[str, float],
    query_mixing: str | None,
    value_heads: int | None,
) -> None:
    """Raise UserError for arguments of :func:`collab_lab.convert` that have no effect together."""
    if to not in SIZES:
        raise UserError(f"{to!r} is none of {', '.join(SIZES)}", "--to")
    if to != "collab":
        reject_unused("needs --to collab", value_heads=value_heads, query_mixing=query_mixing)
    option, named = SIZES[to], {t: value for t, value in by_type.items() if value is not None}
    if unknown := sorted({*named} - {*ATTENTION_TYPES}):
        raise UserError(f"{unknown[0]!r} is none of {', '.join(ATTENTION_TYPES)}", "by_type")
    if to == "headsize":  # whose heads have one size in all layers
        sizes = {f"{option}_in_{type_}": value for type_, value in named.items()}
        others = {name: share for name, share in shares.items() if name != "cache"}
        reject_unused("does not go with --to headsize: give --key-dim", **sizes, **others)
    if (size is not None or bool(named)) + bool(shares) != 1:
        option = f"--{option.replace('_', '-')}"
        problem = f"give one of --cache, --parameters, and sizes ({option} or {option}-in-TYPE)"
        raise UserError(problem)
    check_shares(shares)


def check_shares(shares: Mapping[str, float]) -> None:
    """Raise UserError for shares of an unknown resource, or that are not from 0 to 1."""
    for resource, share in shares.items():
        if resource not in RESOURCES:
            raise UserError(f"{resource!r} is none of {', '.join(RESOURCES)}", "shares")
        if not 0 <= share <= 1:
            raise UserError(f"must be a number from 0 to 1, not {share!r}", resource)
