"""What the validator found in a parallel text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from data_prep.faults import MEANING, Kind
from data_prep.policy import WHOLE_FILE, Action, Policy

EXAMPLES = 5  # kept of each kind


@dataclass(frozen=True)
class Example:
    """Where a fault is: 1-based line, 0-based byte in the (decompressed) file."""

    file: str
    line: int
    byte: int
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.file}:{self.line}: byte {self.byte}{detail}"


@dataclass
class Report:
    """What was found. `dropped` gives each dropped pair to the first kind that it was found of."""

    source: Path
    target: Path
    policy: Policy
    read: int = 0
    kept: int = 0
    source_lines: int = 0
    target_lines: int = 0
    found: Counter[Kind] = field(default_factory=Counter)
    dropped: Counter[Kind] = field(default_factory=Counter)
    examples: dict[Kind, list[Example]] = field(default_factory=dict)

    def add(self, kind: Kind, locate: Callable[[], Example]) -> None:
        """Counts a fault; where it is, is worked out for the first few only."""
        self.found[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(locate())

    @property
    def refused(self) -> list[Kind]:
        """The kinds that were found although they are to be refused; empty if all is well."""
        return [k for k in Kind if self.found[k] and self.policy.action(k) is Action.REFUSE]

    @property
    def first_refused(self) -> Kind | None:
        """The kind to name first: unequal line counts, which make the rest meaningless."""
        refused = self.refused
        return Kind.LINE_COUNT if Kind.LINE_COUNT in refused else next(iter(refused), None)

    def line_for(self, kind: Kind) -> str:
        action = {Action.REFUSE: "refused", Action.COUNT: "counted", Action.DROP: "dropped"}
        number = "" if kind is Kind.LINE_COUNT else f"{self.found[kind]:,} found, first at "
        return (
            f"{action[self.policy.action(kind)]}: {MEANING[kind]}: {number}{self.examples[kind][0]}"
        )

    def summary(self) -> str:
        """One line for each kind found, and one for the whole."""
        lines = [self.line_for(kind) for kind in Kind if self.found[kind]]
        lost = sum(self.dropped.values())
        return "\n".join(
            [*lines, f"{self.read:,} pairs read, {lost:,} dropped, {self.kept:,} kept"]
        )

    def check(self) -> None:
        """Raises UserError if something was found that is to be refused."""
        if (kind := self.first_refused) is None:
            return
        others = [k.value for k in self.refused if k is not kind]
        also = f" (and {', '.join(others)})" if others else ""
        raise UserError(f"{self.line_for(kind)}{also}", todo=_remedy(kind))

    def as_json(self) -> dict[str, Any]:
        return {
            "source": str(self.source),
            "target": str(self.target),
            "policy": self.policy.as_json(),
            "refused": [kind.value for kind in self.refused],
            **self.counts(),
            "examples": {
                kind.value: [asdict(example) for example in examples]
                for kind, examples in self.examples.items()
            },
        }

    def counts(self) -> dict[str, Any]:
        """Lines read, found faulty, dropped and why, kept."""
        return {
            "read": self.read,
            "found": {kind.value: n for kind, n in self.found.items()},
            "dropped": {kind.value: n for kind, n in self.dropped.items()},
            "kept": self.kept,
        }


def _remedy(kind: Kind) -> str:
    if kind is Kind.LINE_COUNT:
        return "find the lines that one side lacks; nothing can be paired until then"
    if kind in WHOLE_FILE:
        return f"mend the file, or give --on-{kind.value} count"
    if kind is Kind.CR:
        return r"mend the file (CR LF line ends: sed -i 's/\r$//' FILE), or give --on-cr drop"
    return f"mend the file, or give --on-{kind.value} drop"
