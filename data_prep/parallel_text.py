"""Find, read, write, join and split parallel text; only LF ends a line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from collab_common.command import check_folder
from collab_common.errors import UserError
from collab_common.files import CHUNK, count_lines
from collab_common.files import lines_of as lines_of  # with its own readers of text
from collab_common.files import rows_of as rows_of

Pair = tuple[Path, Path]
Languages = tuple[str, str]
Line = TypeVar("Line", str, bytes)
#: fairseq's name of each split (train, valid, test, test1, test2, ...), and the stem of its text.
Splits = Mapping[str, str]

_SEGMENT_START = re.compile(r'<seg id="[0-9]*">\s*')
_SEGMENT_END = re.compile(r"\s*</seg>\s*")


# ---- files ---------------------------------------------------------------------------------------


def find_files(
    folder: Path,
    splits: Splits | None,
    languages: Languages,
    needed: Sequence[str] = ("train", "valid"),
) -> dict[str, Pair]:
    """Return the source and target file of each split, in fairseq's order.

    Args:
        splits: None for those of train, valid, test, test.1, test.2, ... that exist
    """
    check_folder(folder)
    usual = {"train": "train", "valid": "valid", "test": "test"}
    usual |= {f"test{n}": f"test.{n}" for n in range(1, 100)}
    splits = splits or {
        name: stem
        for name, stem in usual.items()
        if any(_candidates(folder, stem, lang) for lang in languages)
    }
    for name in needed if splits else ("train",):
        if name not in splits:
            todo = f"name its files {name}.{languages[0]} and {name}.{languages[1]}"
            raise UserError(f"has no {name} set", folder, todo)
    tests = [name for name in splits if name.startswith("test")]
    # fairseq numbers test sets by their order: after a gap, a set would get another set's name
    expected = [f"test{n or ''}" for n in range(len(tests))]
    if set(tests) != set(expected):
        problem = f"the test sets are named {', '.join(tests)}"
        raise UserError(problem, folder, f"name them {', '.join(expected)}")
    source, target = languages
    return {
        name: (text_file(folder, splits[name], source), text_file(folder, splits[name], target))
        for name in ("train", "valid", *expected)
        if name in splits
    }


def _candidates(folder: Path, stem: str, lang: str) -> list[Path]:
    names = (f"{stem}.{lang}", f"{stem}.{lang}.gz")
    return [folder / name for name in names if (folder / name).is_file()]


def text_file(folder: Path, stem: str, lang: str) -> Path:
    """Return the file STEM.LANG or STEM.LANG.gz.

    Raises:
        UserError: none of the two exists, or both do.
    """
    paths = _candidates(folder, stem, lang)
    if not paths:
        raise UserError("file not found, with or without .gz", folder / f"{stem}.{lang}")
    if len(paths) > 1:
        raise UserError("exists twice, with and without .gz", paths[0], "remove one of them")
    return paths[0]


def pair_in(folder: Path, stem: str, languages: Languages, suffix: str = "") -> Pair:
    """Return the paths STEM.SOURCE and STEM.TARGET, each with the suffix."""
    source, target = (folder / f"{stem}.{lang}{suffix}" for lang in languages)
    return source, target


def sibling(out: Path, suffix: str) -> Path:
    """Return the folder OUT-SUFFIX, next to OUT."""
    out = out.resolve()
    return out.with_name(f"{out.name}-{suffix}")


# ---- lines ---------------------------------------------------------------------------------------


def segments(path: Path) -> Iterator[str]:
    """Yield the segments of a test set in SGM or XML; entities stay as they are.

    The mark-up of WMT and IWSLT is not well-formed XML. The published scripts read it line by line
    with these patterns, which gives the sentences of the published results.
    """
    for line in lines_of(path):
        if "<seg id" in line:
            yield _SEGMENT_END.sub("", _SEGMENT_START.sub("", line)).strip()


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write a text, and return its number of lines."""
    count = 0
    with path.open("wb") as stream:
        for line in lines:
            stream.write(line.encode("utf-8") + b"\n")
            count += 1
    return count


# ---- pairs ---------------------------------------------------------------------------------------


def rewrite(sources: Pair, targets: Pair, change: Callable[[str], str] = str) -> Pair:
    """Write both sides of a text with every line changed, and return ``targets``."""
    for source, target in zip(sources, targets, strict=True):
        write_lines(target, map(change, lines_of(source)))
    return targets


def write_segments(originals: Pair, targets: Pair) -> int:
    """Write the segments of both sides, and return their number.

    Raises:
        UserError: the sides have unequal numbers.
    """
    pairs = zip(originals, targets, strict=True)
    counts = [write_lines(target, segments(source)) for source, target in pairs]
    return check_equal(originals, counts, "segments")


def check_equal(pair: Pair, counts: Sequence[int], unit: str = "lines") -> int:
    """Return the number of lines, which both sides must have.

    Raises:
        UserError: the numbers differ; the error names both files.
    """
    if counts[0] != counts[1]:
        raise UserError(
            f"unequal line counts: {pair[0]} has {counts[0]:,} {unit}, {pair[1]} has {counts[1]:,}",
            todo="make line N of one file the translation of line N of the other",
        )
    return counts[0]


def zipped(pair: Pair, read: Callable[[Path], Iterator[Line]]) -> Iterator[tuple[Line, Line]]:
    """Yield pairs of lines, as ``read`` gives the lines of each side.

    Raises:
        UserError: one side ends before the other.
    """
    for source, target in zip_longest(*map(read, pair)):
        if source is None or target is None:
            check_equal(pair, [count_lines(path) for path in pair])
        yield source, target


def join(parts: Sequence[Pair], targets: Pair) -> None:
    """Write ``parts`` one after another and remove them; each part must end in a newline."""
    for side, target in enumerate(targets):
        with target.open("wb") as stream:
            for part in parts:
                with part[side].open("rb") as source:
                    shutil.copyfileobj(source, stream, CHUNK)
                part[side].unlink()


def carve(pair: Pair, every: int, rest: Pair, carved: Pair) -> None:
    """Move each ``every``-th pair (from 1) of a text to ``carved``, and the others to ``rest``."""
    for source, remaining, taken in zip(pair, rest, carved, strict=True):
        with source.open("rb") as lines, remaining.open("wb") as out, taken.open("wb") as taken_out:
            for number, line in enumerate(lines, 1):
                (out if number % every else taken_out).write(line)


def without_typographic_apostrophes(line: str) -> str:
    """Replace U+2019 by an apostrophe, as fairseq's scripts do, but only in test sets."""
    return line.replace("\u2019", "'")
