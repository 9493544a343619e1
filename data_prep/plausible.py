"""Compare the sets of a corpus: swapped files and shifted lines are no fault of any single line.

A model trains on them without an error, and translates badly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np

from data_prep.parallel_text import Languages, Pair, rows_of

SAMPLE = 10_000  # lines whose characters are counted
NEARER = 0.7  # of the distance to its own language is suspicious
BLOCK, LEAST = 100, 20  # pairs whose lengths are compared, at most and at least
RELATED = 0.5  # agreement of lengths in a corpus, below which no set is judged
SHARE = 0.1  # of the blocks without agreement is suspicious


def suspicions(texts: Mapping[str, Pair], languages: Languages) -> Iterator[str]:
    """Yield a warning for each text in the other language, and each set whose lines are no pairs.

    Languages: its characters are nearer to the other side of the validation set than to its own.
    Pairs: many blocks have less than half the agreement of lengths of the best set.
    """
    letters = {split: [_letters(path) for path in pair] for split, pair in texts.items()}
    for split in letters if "valid" in letters else ():
        for side, lang in enumerate(languages):
            references = letters["valid"][side], letters["valid"][1 - side]
            own, other = (_distance(letters[split][side], reference) for reference in references)
            if other < NEARER * own:
                yield f"{split}.{lang} has the characters of valid.{languages[1 - side]}: swapped?"
    agreements = {split: _agreement(pair) for split, pair in texts.items()}
    best = max((float(np.median(found)) for found in agreements.values() if found.size), default=0)
    for split, found in agreements.items():
        unrelated = found < best / 2
        if best > RELATED and found.size and unrelated.mean() > SHARE:
            first = int(unrelated.argmax()) * BLOCK + 1
            share = f"{unrelated.mean():.0%} of the text, first after line {first:,}"
            yield f"{split}: lengths of both sides are unrelated in {share}: is a line missing?"


def _letters(path: Path) -> dict[str, float]:
    """Relative frequencies of characters."""
    lines = (row.decode("utf-8", "replace") for row in islice(rows_of(path), SAMPLE))
    counts = Counter(letter for line in lines for letter in line if not letter.isspace())
    return {letter: count / counts.total() for letter, count in counts.items()}


def _distance(p: Mapping[str, float], q: Mapping[str, float]) -> float:
    """Half the sum of absolute differences: from 0 for equal distributions to 1."""
    return sum(abs(p.get(letter, 0) - q.get(letter, 0)) for letter in p.keys() | q.keys()) / 2


def _agreement(pair: Pair) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Agreement of lengths for each block of pairs: 1 - var(a - b) / (var(a) + var(b)).

    ``a`` and ``b`` are logarithms of lengths in bytes.  Their own variances are those of the whole
    text: in sorted text, a block has none.  Empty if all lines have one length.
    """
    rows, pairs = [], zip(*map(rows_of, pair), strict=False)
    while len(block := [[len(row) for row in rows] for rows in islice(pairs, BLOCK)]) >= LEAST:
        a, b = np.log(block).T
        rows.append([(a - b).var(), a.var(), b.var(), a.mean(), b.mean()])
    if not rows:
        return np.empty(0)
    between, *within, a, b = np.transpose(rows)
    whole = sum(x.mean() for x in within) + a.var() + b.var()
    return 1 - between / whole if whole else np.empty(0)
