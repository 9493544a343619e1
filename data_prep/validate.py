"""Checks a parallel text before fairseq sees it: `python -m data_prep.validate SRC TGT`.

fairseq-preprocess accepts texts of unequal length and lines with a stray carriage return, and
pairs every later sentence with the wrong translation. This stands in front of it. Each kind of
fault is refused, counted, or dropped, as the options say; dropping takes the whole pair, so
whatever comes out is still aligned. Lines end at LF and nowhere else.

Memory does not grow with the text; files whose name ends in .gz are read through gzip.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import create, write_json
from data_prep.divergence import unequal
from data_prep.faults import (
    MEANING,
    WHOLE_FILE,
    Action,
    Hit,
    Kind,
    Policy,
    add_policy_options,
    find_in_pair,
    find_in_side,
    policy_from,
)
from data_prep.streams import Block, read_blocks

PROG = "data_prep.validate"
BLOCK_LINES = 4096
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
    found: Counter[Kind] = field(default_factory=Counter)
    dropped: Counter[Kind] = field(default_factory=Counter)
    dropped_lines: array[int] = field(default_factory=lambda: array("q"))
    examples: dict[Kind, list[Example]] = field(default_factory=dict)

    def add(self, block: Block, hit: Hit) -> None:
        """Counts a fault; where it is, is worked out for the first few only."""
        self.found[hit.kind] += 1
        examples = self.examples.setdefault(hit.kind, [])
        if len(examples) < EXAMPLES:
            byte = replace(block, rows=block.rows[: hit.index]).end + hit.byte
            line = block.line + hit.index + 1
            examples.append(Example(str(block.path), line, byte, hit.detail))

    @property
    def refused(self) -> list[Kind]:
        """The kinds that were found although they are to be refused; empty if all is well.

        Unequal line counts, which make the rest meaningless, come first.
        """
        found = [k for k in Kind if self.found[k] and self.policy.action(k) is Action.REFUSE]
        return sorted(found, key=lambda kind: kind is not Kind.LINE_COUNT)

    def original_line(self, kept: int) -> int:
        """Where in the text the pair stands that is the `kept`-th of those kept, from 1."""
        for line in self.dropped_lines:
            kept += line <= kept
        return kept

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

    def check(self, todo: str = "") -> None:
        """Raises UserError for the first fault that is to be refused; `todo` is other advice."""
        if not self.refused:
            return
        kind, *others = self.refused
        also = f" (and {', '.join(other.value for other in others)})" if others else ""
        raise UserError(f"{self.line_for(kind)}{also}", todo=todo or _remedy(kind))

    def as_json(self) -> dict[str, Any]:
        return {
            "source": str(self.source),
            "target": str(self.target),
            "policy": self.policy.as_json(),
            "refused": [kind.value for kind in Kind if kind in self.refused],
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


def validate(
    source: Path, target: Path, policy: Policy | None = None, keep: tuple[Path, Path] | None = None
) -> Report:
    """Reads the whole text and reports; appends the pairs that are kept to `keep`, if given.

    Raises UserError only for what cannot be read. Whether what was found is acceptable is the
    report's to say: `report.refused`, `report.check()`.
    """
    report = Report(source, target, policy or Policy())
    lines = [0, 0]
    end_of_pairs: Block | None = None  # in the longer text
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(create(path, "ab")) for path in keep or ()]
        for found in zip_longest(*(read_blocks(path, BLOCK_LINES) for path in (source, target))):
            counts = [len(block.rows) if block else 0 for block in found]
            lines = [total + count for total, count in zip(lines, counts, strict=True)]
            pairs = min(counts)
            blocks = [block and replace(block, rows=block.rows[:pairs]) for block in found]
            if counts[0] != counts[1]:
                end_of_pairs = end_of_pairs or blocks[counts.index(max(counts))]
            dropped = _inspect(report, blocks) if pairs else {}
            report.dropped_lines.extend(report.read + index + 1 for index in sorted(dropped))
            for output, block in zip(outputs, blocks, strict=False):  # no outputs, no writing
                _write_kept(output, block.rows if block else [], dropped)
            report.read += pairs
            report.kept += pairs - len(dropped)
    if end_of_pairs is not None:
        detail = unequal(source, target, lines)
        report.add(end_of_pairs, Hit(Kind.LINE_COUNT, len(end_of_pairs.rows), 0, detail))
    return report


def _inspect(report: Report, blocks: list[Block]) -> dict[int, Kind]:
    """Notes every fault of a block; the pairs to drop, each with the first reason for it."""
    dropped: dict[int, Kind] = {}

    def note(block: Block, hits: Iterator[Hit]) -> None:
        for hit in hits:
            report.add(block, hit)
            if report.policy.action(hit.kind) is Action.DROP and hit.index not in dropped:
                dropped[hit.index] = hit.kind
                report.dropped[hit.kind] += 1

    for block in blocks:
        note(block, find_in_side(block.rows, block.line == 0, report.policy.limits))
    note(blocks[0], find_in_pair(*(block.rows for block in blocks)))
    return dropped


def _write_kept(output: BinaryIO, rows: list[bytes], dropped: Mapping[int, Kind]) -> None:
    """Writes a block without the dropped pairs; the last line gets the newline it may lack."""
    if rows and not rows[-1].endswith(b"\n"):
        rows = [*rows[:-1], rows[-1] + b"\n"]
    if dropped:
        rows = [line for index, line in enumerate(rows) if index not in dropped]
    output.writelines(rows)


def validate_to(source: Path, target: Path, policy: Policy, out: tuple[Path, Path]) -> Report:
    """As `validate`, but the kept pairs appear under their names only if nothing is refused."""
    temporary = [path.with_name(f".{path.name}.tmp-{uuid4().hex[:8]}") for path in out]
    try:
        report = validate(source, target, policy, (temporary[0], temporary[1]))
        if not report.refused:
            for path, final in zip(temporary, out, strict=True):
                path.replace(final)
        return report
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)


def main(argv: list[str] | None = None) -> int:
    args = _parse(argv)
    return run(PROG, lambda: _report(args))


def _report(args: argparse.Namespace) -> None:
    texts = args.source, args.target, policy_from(args)
    report = validate_to(*texts, tuple(args.out)) if args.out else validate(*texts)
    print(report.summary(), flush=True)
    if args.json:
        write_json(args.json, report.as_json())
    report.check()


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROG, description="Checks a parallel text before it is binarised."
    )
    parser.add_argument("source", type=Path, help="text, one sentence a line (.gz is read, too)")
    parser.add_argument("target", type=Path, help="its translation, line by line")
    parser.add_argument(
        "--out",
        nargs=2,
        type=Path,
        metavar=("SRC", "TGT"),
        help="write the pairs that are kept to these two files",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to this file")
    add_policy_options(parser)
    args = parser.parse_args(argv)
    drops = [k.value for k in Kind if policy_from(args).action(k) is Action.DROP]
    if drops and not args.out:
        parser.error(f"--on-{drops[0]} drop: needs --out SRC TGT, where the rest is written")
    inputs = {args.source.resolve(), args.target.resolve()}
    if args.out and (len(inputs | {path.resolve() for path in args.out}) < len(inputs) + 2):
        parser.error("--out: name two files that are neither each other nor the input")
    return args


if __name__ == "__main__":
    sys.exit(main())
