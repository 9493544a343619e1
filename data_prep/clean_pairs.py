"""Drops pairs of sentences that are too short, too long, or of too unequal lengths.

The rules are those of Moses' clean-corpus-n.perl, in its order: white space is collapsed, pairs
with an empty side go, then those with a side of too many words, of too few, with too high a
ratio (either way), and with a word of more than 1,000 characters. Vertical bars, which separate
factors there, are removed, unless the first pair has one; then they are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import regex

from collab_common.errors import UserError
from collab_common.files import count_lines, create, open_bytes
from data_prep.divergence import unequal
from data_prep.parallel_text import Pair
from data_prep.streams import LINE_BYTES, Block, ordered, read_blocks, refuse_overwriting

LONGEST_WORD = 1000  # characters
REASONS = ("empty", "too_long", "too_short", "ratio", "long_word")

_WORD = regex.compile(r"\S+")
_NO_SPACE = regex.compile(r"[\x1c-\x1f]")


def clean_pairs(
    sources: Pair, targets: Pair, *, ratio: float, shortest: int, longest: int, jobs: int = 1
) -> dict[str, int]:
    """Writes the pairs of `sources` that are kept to `targets`; counts what happened.

    Args:
        ratio: the longer side may have this many times the words of the shorter one
        shortest, longest: words that each side must and may have

    Returns "read", "kept", and how many pairs were dropped for each of REASONS, the first that
    applies. Raises UserError (with file and line) for texts of unequal length or not UTF-8.
    """
    refuse_overwriting(sources, targets)
    rules = Rules(ratio, shortest, longest, _has_factors(sources))
    counts = Counter[str](dict.fromkeys(("read", "kept", *REASONS), 0))
    with create(targets[0]) as source_out, create(targets[1]) as target_out:
        for source, target, found in ordered(rules, _read_pairs(sources), jobs):
            source_out.write(source)
            target_out.write(target)
            counts.update(found)
    return dict(counts)


@dataclass(frozen=True)
class Rules:
    """Which pairs to keep; called with a block of each side, gives what is kept, and counts."""

    ratio: float
    shortest: int
    longest: int
    factors: bool = False

    def __call__(self, pair: tuple[Block, Block]) -> tuple[bytes, bytes, Counter[str]]:
        kept: tuple[list[str], list[str]] = ([], [])
        counts = Counter[str]()
        for source, target in zip(pair[0].decode(), pair[1].decode(), strict=True):
            one, other = self._words(source), self._words(target)
            if reason := self.reason(one, other):
                counts[reason] += 1
                continue
            kept[0].append(" ".join(one) + "\n")
            kept[1].append(" ".join(other) + "\n")
        counts["read"] = len(pair[0].rows)
        counts["kept"] = len(kept[0])
        return "".join(kept[0]).encode("utf-8"), "".join(kept[1]).encode("utf-8"), counts

    def reason(self, source: list[str], target: list[str]) -> str:
        """Why a pair is dropped; "" if it is kept."""
        one, other = len(source), len(target)
        if not (one and other):
            return "empty"
        if max(one, other) > self.longest:
            return "too_long"
        if min(one, other) < self.shortest:
            return "too_short"
        if one / other > self.ratio or other / one > self.ratio:
            return "ratio"
        if max(map(self._longest_factor, (source, target))) > LONGEST_WORD:
            return "long_word"
        return ""

    def _words(self, line: str) -> list[str]:
        text = line if self.factors else line.replace("|", "")
        # str.split() takes four control characters for white space that Perl does not
        return _WORD.findall(text) if _NO_SPACE.search(text) else text.split()

    def _longest_factor(self, words: list[str]) -> int:
        parts = (part for word in words for part in word.split("|")) if self.factors else words
        return max(map(len, parts))


def _has_factors(sources: Pair) -> bool:
    """Whether the first pair has a vertical bar: the script's sign of a text with factors."""
    first = []
    for path in sources:
        with open_bytes(path) as stream:
            first.append(stream.readline(LINE_BYTES))
    return b"|" in b"".join(first)


def _read_pairs(sources: Pair) -> Iterator[tuple[Block, Block]]:
    """Blocks of the same lines of both files; UserError where one ends before the other."""
    for one, other in zip_longest(*map(read_blocks, sources)):
        if one is None or other is None or len(one.rows) != len(other.rows):
            raise _unequal(sources)
        yield one, other


def _unequal(sources: Pair) -> UserError:
    lines = [count_lines(path) for path in sources]
    longer = sources[0] if lines[0] > lines[1] else sources[1]
    return UserError(
        f"unequal line counts: {unequal(*sources, lines)}",
        f"{longer}:{min(lines) + 1}",
        "find the lines that one side lacks; nothing can be paired until then",
    )
