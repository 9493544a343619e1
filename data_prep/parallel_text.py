"""Streaming steps on parallel text that every corpus needs: check, write, join, split."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from collab_common.files import CHUNK
from data_prep.faults import Kind, Limits
from data_prep.policy import Action, Policy
from data_prep.validate import validate

Pair = tuple[Path, Path]

#: For text as published: only what no later step could cope with is refused.
_AS_PUBLISHED = Policy(
    {kind: Action.REFUSE if kind in (Kind.UTF8, Kind.LINE_COUNT) else Action.COUNT for kind in Kind}
)
#: For text that fairseq is about to read.
_FOR_FAIRSEQ = Policy(
    dict.fromkeys((Kind.SEPARATOR, Kind.EMPTY, Kind.LONG, Kind.BOM), Action.COUNT),
    Limits(max_words=1024),  # fairseq's own limit on positions
)


def pair_in(folder: Path, stem: str, languages: tuple[str, str], suffix: str = "") -> Pair:
    """The files STEM.SOURCE and STEM.TARGET, each with the suffix."""
    source, target = (folder / f"{stem}.{lang}{suffix}" for lang in languages)
    return source, target


def check_published(pair: Pair) -> dict[str, Any]:
    """Counts of an original pair. Raises UserError: unequal line counts, or not UTF-8."""
    return _checked(pair, _AS_PUBLISHED, "this is not the published text; fetch it again")


def check_for_fairseq(pair: Pair) -> dict[str, Any]:
    """Counts of a pair to be binarised. Raises UserError if fairseq would misread it."""
    return _checked(pair, _FOR_FAIRSEQ, "remove it from the original text")


def _checked(pair: Pair, policy: Policy, todo: str) -> dict[str, Any]:
    report = validate(*pair, policy)
    if (kind := report.first_refused) is not None:
        raise UserError(report.line_for(kind), todo=todo)
    return report.counts()


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their newlines; a line ends at LF and nowhere else.

    Raises UserError that names line and byte if the file is not UTF-8.
    """
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield line.decode("utf-8").removesuffix("\n")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise UserError(
                    f"invalid UTF-8: byte 0x{byte:02X} at {error.start} of the line",
                    f"{path}:{number}",
                    "this is not the published file; fetch it again, or mend a copy",
                ) from None


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Writes a text; the number of lines."""
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for line in lines:
            stream.write(line + "\n")
            count += 1
    return count


def check_equal(pair: Pair, counts: Sequence[int], what: str = "lines") -> int:
    """The number of lines of both sides. Raises UserError that names both files if they differ."""
    if counts[0] != counts[1]:
        raise UserError(
            f"unequal line counts: {pair[0]} has {counts[0]:,} {what}, {pair[1]} has {counts[1]:,}",
            todo="nothing can be paired until they are equal",
        )
    return counts[0]


def join(parts: Sequence[Pair], targets: Pair) -> None:
    """Writes `parts` one after the other, and removes them; each must end in a newline."""
    for side, target in enumerate(targets):
        with target.open("wb") as stream:
            for part in parts:
                with part[side].open("rb") as source:
                    shutil.copyfileobj(source, stream, CHUNK)
                part[side].unlink()


def carve(pair: Pair, every: int, rest: Pair, carved: Pair) -> dict[str, int]:
    """Moves each `every`-th pair (counted from 1) of a text to `carved`, the others to `rest`."""
    counts = {"read": 0, "carved": 0}
    with ExitStack() as stack:
        sources = [stack.enter_context(path.open("rb")) for path in pair]
        kept = [stack.enter_context(path.open("wb")) for path in rest]
        taken = [stack.enter_context(path.open("wb")) for path in carved]
        for number, lines in enumerate(zip(*sources, strict=True), 1):
            chosen = taken if number % every == 0 else kept
            counts["read"] = number
            counts["carved"] += chosen is taken
            for stream, line in zip(chosen, lines, strict=True):
                stream.write(line)
    return counts


def without_typographic_apostrophes(lines: Iterable[str]) -> Iterator[str]:
    """U+2019 becomes an apostrophe, as fairseq's scripts do in test sets (only there)."""
    return (line.replace("\u2019", "'") for line in lines)
