"""What to do about each kind of fault in a text: refuse it, count it, or drop the pair."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from collab_common.command import positive
from collab_common.errors import UserError
from data_prep.faults import MEANING, Kind, Limits


class Action(str, Enum):
    REFUSE = "refuse"
    COUNT = "count"
    DROP = "drop"


WHOLE_FILE = (Kind.BOM, Kind.NO_NEWLINE)  # there is no pair to drop
DEFAULT_ACTIONS = dict.fromkeys(Kind, Action.REFUSE) | {
    Kind.COPY: Action.COUNT,  # names and numbers are rightly the same
    Kind.NO_NEWLINE: Action.COUNT,  # harmless as long as the line counts are equal
}


@dataclass(frozen=True)
class Policy:
    """What to do about each kind of fault, and from where on a line is over-long."""

    actions: Mapping[Kind, Action] = field(default_factory=lambda: dict(DEFAULT_ACTIONS))
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.action(Kind.LINE_COUNT) is not Action.REFUSE:
            raise UserError("unequal line counts can only be refused")
        for kind in WHOLE_FILE:
            if self.action(kind) is Action.DROP:
                raise UserError(f"--on-{kind.value} drop: there is no pair to drop")

    def action(self, kind: Kind) -> Action:
        return self.actions.get(kind, DEFAULT_ACTIONS[kind])

    def as_json(self) -> dict[str, Any]:
        actions = {kind.value: self.action(kind).value for kind in Kind}
        return {"on": actions, **asdict(self.limits)}


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """The validator's own options, for every command that checks a text."""
    group = parser.add_argument_group("what to do about faulty lines")
    for kind, default in DEFAULT_ACTIONS.items():
        if kind is Kind.LINE_COUNT:
            continue
        actions = [a.value for a in Action if not (a is Action.DROP and kind in WHOLE_FILE)]
        group.add_argument(
            f"--on-{kind.value}",
            choices=actions,
            default=default.value,
            help=f"{MEANING[kind]} (default: {default.value})",
        )
    for name, limit in (("words", Limits.max_words), ("chars", Limits.max_chars)):
        group.add_argument(
            f"--max-{name}",
            type=positive,
            default=limit,
            metavar="N",
            help=f"a line of more {name} than this is over-long (default: {limit or 'no limit'})",
        )


def policy_from(args: argparse.Namespace) -> Policy:
    actions: dict[Kind, Action] = {
        kind: Action(getattr(args, f"on_{kind.value.replace('-', '_')}"))
        for kind in Kind
        if kind is not Kind.LINE_COUNT
    }
    return Policy(actions, Limits(args.max_words, args.max_chars))
