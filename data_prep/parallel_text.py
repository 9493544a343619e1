"""Streaming steps on parallel text that every corpus needs: read, write, join, split.

Only LF ends a line.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from collab_common.errors import UserError
from collab_common.files import CHUNK, create, open_bytes
from collab_common.folder import Json

Pair = tuple[Path, Path]
Languages = tuple[str, str]


def pair_in(folder: Path, stem: str, languages: Languages, suffix: str = "") -> Pair:
    """The files STEM.SOURCE and STEM.TARGET, each with the suffix."""
    source, target = (folder / f"{stem}.{lang}{suffix}" for lang in languages)
    return source, target


def rows_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, gzipped or not, with their newlines, which the last one may lack."""
    with open_bytes(path) as stream:
        yield from stream


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, gzipped or not, without their newlines.

    Raises UserError that names the line if it is not UTF-8.
    """
    for number, row in enumerate(rows_of(path), 1):
        try:
            yield row.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            what = f"invalid UTF-8: byte 0x{row[error.start]:02X}"
            raise UserError(what, f"{path}:{number}", "convert the text to UTF-8") from None


def convert(source: Path, target: Path, function: Callable[[str], str]) -> Json:
    """Writes `function` of each line of a text; "lines" and "tokens" written."""
    counts = {"lines": 0, "tokens": 0}
    with create(target) as stream:
        for line in map(function, lines_of(source)):
            stream.write(line.encode("utf-8") + b"\n")
            counts["lines"] += 1
            counts["tokens"] += len(line.split())
    return counts


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Writes a text; the number of lines."""
    count = 0
    with create(path) as stream:
        for line in lines:
            stream.write(line.encode("utf-8") + b"\n")
            count += 1
    return count


def rewrite(sources: Pair, targets: Pair, change: Callable[[str], str] = str) -> Pair:
    """Writes both sides of a text, each line changed; the targets."""
    for source, target in zip(sources, targets, strict=True):
        write_lines(target, map(change, lines_of(source)))
    return targets


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
    number = 0
    for source, kept, taken in zip(pair, rest, carved, strict=True):
        with source.open("rb") as lines, kept.open("wb") as out, taken.open("wb") as taken_out:
            for number, line in enumerate(lines, 1):
                (out if number % every else taken_out).write(line)
    return {"read": number, "carved": number // every}


def without_typographic_apostrophes(line: str) -> str:
    """U+2019 becomes an apostrophe, as fairseq's scripts do in test sets (only there)."""
    return line.replace("\u2019", "'")
