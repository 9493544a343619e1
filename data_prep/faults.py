"""What can be wrong with a line of a parallel corpus, what to do about it, and how it is found.

Every search looks at a whole block first, with operations that run at C speed, and goes line by
line only through a block in which there is something to find: clean text costs next to nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from collab_common.command import positive
from collab_common.errors import UserError


class Kind(str, Enum):
    """One kind of fault. The value is its name in options and reports."""

    UTF8 = "utf8"
    CR = "cr"
    NUL = "nul"
    SEPARATOR = "separator"
    BOM = "bom"
    EMPTY = "empty"
    LONG = "long"
    COPY = "copy"
    NO_NEWLINE = "no-newline"
    LINE_COUNT = "line-count"


MEANING = {
    Kind.UTF8: "invalid UTF-8",
    Kind.CR: "carriage return inside a line, which fairseq takes for a line end",
    Kind.NUL: "NUL character",
    Kind.SEPARATOR: "control character (U+2028, U+2029, U+0085, VT, FF, ...) that other programs "
    "take for a line end",
    Kind.BOM: "byte order mark at the start of the file",
    Kind.EMPTY: "empty line",
    Kind.LONG: "over-long line",
    Kind.COPY: "target equal to the source",
    Kind.NO_NEWLINE: "no newline at the end of the file",
    Kind.LINE_COUNT: "unequal line counts",
}

_CONTROLS = {
    Kind.CR: [b"\r"],
    Kind.NUL: [b"\0"],
    # everything else at which Python's str.splitlines() ends a line
    Kind.SEPARATOR: [c.encode() for c in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"],
}
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Limits:
    """The longest line that is not over-long; None for no limit."""

    max_words: int | None = 1000
    max_chars: int | None = None

    def harmless(self, line: bytes) -> bool:
        """Whether a line cannot be over-long, by its bytes alone."""
        # n words take at least n characters and n - 1 spaces
        words = self.max_words is None or len(line) <= 2 * self.max_words
        return words and (self.max_chars is None or len(line) <= self.max_chars)

    def excess(self, line: str) -> str:
        """'1203 words, limit 1000', or '' if the line is short enough."""
        if self.max_words is not None and (words := len(line.split())) > self.max_words:
            return f"{words} words, limit {self.max_words}"
        if self.max_chars is not None and len(line) > self.max_chars:
            return f"{len(line)} characters, limit {self.max_chars}"
        return ""


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
    kinds = (kind for kind in Kind if kind is not Kind.LINE_COUNT)
    actions: dict[Kind, Action] = {
        kind: Action(getattr(args, f"on_{kind.value}".replace("-", "_"))) for kind in kinds
    }
    return Policy(actions, Limits(args.max_words, args.max_chars))


@dataclass(frozen=True)
class Hit:
    """A fault in one line of a block: the line's index, the byte within the line, and more."""

    kind: Kind
    index: int
    byte: int = 0
    detail: str = ""


def find_in_side(lines: list[bytes], first: bool, limits: Limits) -> Iterator[Hit]:
    """The faults in one side's block of lines, whose newlines are still on.

    `first` says that the block opens the file. A kind is reported once a line at most.
    """
    if first and lines and lines[0].startswith(_BOM):
        yield Hit(Kind.BOM, 0)
    if lines and not lines[-1].endswith(b"\n"):
        yield Hit(Kind.NO_NEWLINE, len(lines) - 1, len(lines[-1]))
    block = b"".join(lines)
    for kind, controls in _CONTROLS.items():
        if not any(control in block for control in controls):
            continue
        pattern = re.compile(b"|".join(controls))
        for index, line in enumerate(lines):
            if match := pattern.search(line):
                detail = f"U+{ord(match.group().decode()):04X}" if kind is Kind.SEPARATOR else ""
                yield Hit(kind, index, match.start(), detail)
    yield from _find_in_text(lines, block, limits)


def find_in_pair(source: list[bytes], target: list[bytes]) -> Iterator[Hit]:
    """Pairs whose target is the source, untranslated; two empty sides are no copy."""
    for index, (one, other) in enumerate(zip(source, target, strict=True)):
        one = one.strip()
        if one and one == other.strip():
            yield Hit(Kind.COPY, index)


def _find_in_text(lines: list[bytes], block: bytes, limits: Limits) -> Iterator[Hit]:
    """What only characters show: bad encoding, white space, length."""
    try:
        texts = block.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        yield from _find_bad_utf8(lines)
        texts = [line.decode("utf-8", "replace").removesuffix("\n") for line in lines]
    # str.split() knows every kind of white space; bytes.split() only ASCII's
    for index, text in enumerate(texts[: len(lines)]):
        if not text or text.isspace():
            yield Hit(Kind.EMPTY, index)
    if lines and not limits.harmless(max(lines, key=len)):
        for index, text in enumerate(texts[: len(lines)]):
            if excess := limits.excess(text):
                yield Hit(Kind.LONG, index, 0, excess)


def _find_bad_utf8(lines: list[bytes]) -> Iterator[Hit]:
    for index, line in enumerate(lines):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            yield Hit(Kind.UTF8, index, error.start, f"byte 0x{line[error.start]:02X}")
