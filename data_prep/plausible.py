"""Compare the sets of a corpus, to find swapped files and shifted lines.

No single line of these shows a fault: a model trains on them without an error, and translates
badly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.parallel_text import Languages, Pair, rows_of

Values = np.ndarray[tuple[int], np.dtype[np.float64]]  # one of each block

SAMPLE = 10_000  # lines whose characters are counted
NEARER = 0.7  # of the distance to its own language is suspicious
BLOCK, LEAST = 100, 20  # pairs whose lengths are compared, at most and at least
RELATED = 0.5  # agreement of lengths in a corpus, below which no set is judged
SHARE = 0.1  # of the blocks without agreement is suspicious


def suspicions(texts: Mapping[str, Pair], languages: Languages) -> Iterator[str]:
    """Yield a warning for each text in the other language, and each set whose lines are no pairs.

    A text seems to be in the other language if its characters are nearer to the other side of the
    validation set than to its own.  The lines of a set seem to be no pairs if in many blocks the
    lengths of both sides agree less than half as well as in the best set.  A block whose lengths
    vary less than those of its translations, as in sorted text, shows nothing.

    If the files of all sets are swapped, no comparison of the sets can show it.
    """
    letters = {split: [_letters(path) for path in pair] for split, pair in texts.items()}
    for split in letters if "valid" in letters else ():
        for side, lang in enumerate(languages):
            references = letters["valid"][side], letters["valid"][1 - side]
            own, other = (_distance(letters[split][side], reference) for reference in references)
            if other < NEARER * own:
                yield (
                    f"{split}.{lang} has the characters of valid.{languages[1 - side]}: "
                    "are the files swapped?"
                )
    lengths = {split: blocks for split, pair in texts.items() if (blocks := _blocks(pair))}
    if not lengths:
        return
    best = max(lengths.values(), key=lambda blocks: float(np.median(blocks.agreement)))
    expected, noise = float(np.median(best.agreement)), float(np.median(best.difference))
    for split, blocks in lengths.items():
        unrelated = (blocks.agreement < expected / 2) & (blocks.spread > noise)
        if expected > RELATED and unrelated.mean() > SHARE:
            first = int(unrelated.argmax()) * BLOCK + 1
            share = f"{unrelated.mean():.0%} of the text, first after line {first:,}"
            yield f"{split}: lengths of both sides are unrelated in {share}: is a line missing?"


def _letters(path: Path) -> dict[str, float]:
    """Return the relative frequencies of the characters of a text."""
    lines = (row.decode("utf-8", "replace") for row in islice(rows_of(path), SAMPLE))
    counts = Counter(letter for line in lines for letter in line if not letter.isspace())
    return {letter: count / counts.total() for letter, count in counts.items()}


def _distance(p: Mapping[str, float], q: Mapping[str, float]) -> float:
    """Return half the sum of the absolute differences: 0 for equal distributions, at most 1."""
    return sum(abs(p.get(letter, 0) - q.get(letter, 0)) for letter in p.keys() | q.keys()) / 2


class _Blocks(NamedTuple):
    """Measures of each block of pairs; a and b are the logarithms of the lengths in bytes."""

    difference: Values  # var(a - b)
    agreement: Values  # 1 - var(a - b) / (var(a) + var(b)), with a's and b's of the whole text
    spread: Values  # the smaller one of the block's own var(a), var(b)


def _blocks(pair: Pair) -> _Blocks | None:
    """Compare the lengths in each block of pairs; None for a short text, or for equal lengths."""
    rows, pairs = [], zip(*map(rows_of, pair), strict=False)
    while len(block := [[len(row) for row in rows] for rows in islice(pairs, BLOCK)]) >= LEAST:
        a, b = np.log(block).T
        rows.append([(a - b).var(), a.var(), b.var(), a.mean(), b.mean()])
    if not rows:
        return None
    difference, *within, a, b = np.transpose(rows)
    whole = sum(x.mean() for x in within) + a.var() + b.var()
    if not whole:
        return None
    return _Blocks(difference, 1 - difference / whole, np.minimum(*within))
