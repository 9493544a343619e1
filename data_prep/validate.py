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
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from collab_common.command import run
from collab_common.files import open_bytes, write_json
from data_prep.divergence import unequal
from data_prep.faults import Hit, Kind, find_in_pair, find_in_side
from data_prep.policy import Action, Policy, add_policy_options, policy_from
from data_prep.report import Example, Report
from data_prep.streams import Side

PROG = "data_prep.validate"
BLOCK_LINES = 4096


def validate(
    source: Path, target: Path, policy: Policy | None = None, keep: tuple[Path, Path] | None = None
) -> Report:
    """Reads the whole text and reports; writes the pairs that are kept to `keep`, if given.

    Raises UserError only for what cannot be read. Whether what was found is acceptable is the
    report's to say: `report.refused`, `report.check()`.
    """
    report = Report(source, target, policy or Policy())
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(open_bytes(path)) for path in (source, target)]
        outputs = [stack.enter_context(path.open("wb")) for path in keep or ()]
        sides = [Side(path, stream) for path, stream in zip((source, target), streams, strict=True)]
        while True:
            blocks = [side.read_block(BLOCK_LINES) for side in sides]
            pairs = min(map(len, blocks))
            dropped = _inspect(report, sides, [block[:pairs] for block in blocks])
            for output, block in zip(outputs, blocks, strict=False):  # no outputs, no writing
                _write_kept(output, block[:pairs], dropped)
            report.read += pairs
            report.kept += pairs - len(dropped)
            ends = [
                side.byte + sum(map(len, block[:pairs]))
                for side, block in zip(sides, blocks, strict=True)
            ]
            for side, block in zip(sides, blocks, strict=True):
                side.move_past(block)
            if any(len(block) != BLOCK_LINES for block in blocks):
                break
        report.source_lines, report.target_lines = (side.count_rest() for side in sides)
    if report.source_lines != report.target_lines:
        _report_line_count(report, ends)
    return report


def _locate(side: Side, block: list[bytes], hit: Hit) -> Example:
    byte = side.byte + sum(map(len, block[: hit.index])) + hit.byte
    return Example(str(side.path), side.line + hit.index + 1, byte, hit.detail)


def _inspect(report: Report, sides: list[Side], blocks: list[list[bytes]]) -> dict[int, Kind]:
    """Notes every fault of a block; the pairs to drop, each with the first reason for it."""
    dropped: dict[int, Kind] = {}

    def note(side: Side, block: list[bytes], hits: Iterator[Hit]) -> None:
        for hit in hits:
            report.add(hit.kind, partial(_locate, side, block, hit))
            if report.policy.action(hit.kind) is Action.DROP and hit.index not in dropped:
                dropped[hit.index] = hit.kind
                report.dropped[hit.kind] += 1

    for side, block in zip(sides, blocks, strict=True):
        note(side, block, find_in_side(block, side.line == 0, report.policy.limits))
    note(sides[0], blocks[0], find_in_pair(*blocks))
    return dropped


def _write_kept(output: BinaryIO, block: list[bytes], dropped: Mapping[int, Kind]) -> None:
    """Writes a block without the dropped pairs; the last line gets the newline it may lack."""
    if block and not block[-1].endswith(b"\n"):
        block = [*block[:-1], block[-1] + b"\n"]
    if dropped:
        block = [line for index, line in enumerate(block) if index not in dropped]
    output.writelines(block)


def _report_line_count(report: Report, ends: list[int]) -> None:
    """Notes where the longer text goes on alone; `ends` are the bytes up to there."""
    lines = report.source_lines, report.target_lines
    longer, end = (report.source, ends[0]) if lines[0] > lines[1] else (report.target, ends[1])
    detail = unequal(report.source, report.target, lines)
    where = Example(str(longer), report.read + 1, end, detail)
    report.add(Kind.LINE_COUNT, lambda: where)


def validate_to(source: Path, target: Path, policy: Policy, out: tuple[Path, Path]) -> Report:
    """As `validate`, but the kept pairs appear under their names only if nothing is refused."""
    temporary = [path.with_name(f".{path.name}.tmp-{os.getpid()}") for path in out]
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
