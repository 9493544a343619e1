"""Byte-pair encoding, learnt as subword-nmt learns it: the same codes, less memory.

Sennrich, Haddow, Birch 2016, "Neural Machine Translation of Rare Words with Subword Units"; the
program is github.com/rsennrich/subword-nmt (MIT), which the papers' recipes use.

`learn` writes the very bytes of its learn_bpe and calls its functions. But that program has a
dictionary of words for each pair of symbols, which takes several gigabytes for WMT14's two
million words; compact arrays stand in for it here. `data_prep.apply_bpe` applies the codes.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from sys import intern

import numpy as np
from subword_nmt.learn_bpe import prune_stats, update_pair_statistics

from collab_common.errors import UserError
from data_prep.streams import Block, ordered, read_blocks

VERSION = "#version: 0.2"  # of the codes' format, in which the last symbol of a word ends in END
END = "</w>"
RAREST = 2  # a pair that is found only once is not worth a symbol
COUNTED_LINES = 1 << 14  # at a time: words repeat, so more is cheaper

Pair = tuple[str, str]
Word = tuple[str, ...]
Change = tuple[int, Word, Word, int]


def learn(texts: list[Path], merges: int, codes: Path, *, jobs: int = 1) -> dict[str, int]:
    """Learns `merges` merges on all the texts together and writes them to `codes`.

    Counting the words takes `jobs` processes; the merges are found in this one. Returns "lines",
    "tokens" and "types" (words between blanks) read, and the "merges" found: fewer than asked
    for if no pair is left that occurs twice. Raises UserError for texts without words.
    """
    if merges < 1:
        raise UserError(f"{merges} merges: there must be at least one")
    lines, counter = count_text(texts, jobs)
    if not counter:
        raise UserError("no words to learn from", texts[0])
    counts = {"lines": lines, "tokens": sum(counter.values()), "types": len(counter)}
    found = list(find_merges(*_take_in(counter), merges))
    text = "\n".join([VERSION, *map(" ".join, found)]) + "\n"
    codes.write_text(text, encoding="utf-8", newline="\n")
    return {**counts, "merges": len(found)}


def count_text(texts: Sequence[Path], jobs: int) -> tuple[int, Counter[str]]:
    """The number of lines of all texts, and how often each word is in them, first come first."""
    lines, counter = 0, Counter[str]()
    for path in texts:
        for read, counted in ordered(count_words, read_blocks(path, COUNTED_LINES), jobs):
            lines += read
            counter.update(counted)
    return lines, counter


def count_words(block: Block) -> tuple[int, dict[str, int]]:
    """The number of lines, and how often each word (between blanks) is in them."""
    lines = block.decode()
    counter = Counter[str]()
    for line in lines:
        counter.update(line.strip("\r ").split(" "))
    counter.pop("", None)
    return len(lines), dict(counter)


class Words:
    """What subword-nmt has as a list of (symbols, count)."""

    def __init__(self) -> None:
        self._symbols: list[str] = []
        self._counts = array("q")

    def append(self, word: Word, count: int) -> None:
        self._symbols.append(" ".join(word))
        self._counts.append(count)

    def replace(self, pair: Pair, numbers: Iterable[int]) -> Iterator[Change]:
        """Makes one symbol of two in these words: number, symbols after, before, count."""
        first, second = pair
        merged = intern(first + second)
        for number in numbers:
            # one object a symbol, however many pairs it is remembered in
            before = tuple(map(intern, self._symbols[number].split(" ")))
            after: list[str] = []
            for symbol in before:
                if symbol == second and after and after[-1] == first:
                    after[-1] = merged
                else:
                    after.append(symbol)
            self._symbols[number] = " ".join(after)
            yield number, tuple(after), before, self._counts[number]


class Places:
    """What subword-nmt has as a dictionary: pair of symbols -> number of word -> occurrences.

    Every change is written down, n for one occurrence more in word n and ~n for one less, and
    added up when the pair is merged. A single change, as most pairs have, is a plain number.
    """

    def __init__(self) -> None:
        self._changes: dict[Pair, int | array[int]] = {}

    def __getitem__(self, pair: Pair) -> Occurrences:
        return Occurrences(self._changes, pair)

    def __setitem__(self, pair: Pair, _: object) -> None:
        """Only ever done with an empty dictionary for a pair that has been taken out."""

    def take(self, pair: Pair) -> list[int]:
        """Forgets the pair; the words that it is in."""
        numbers, totals = _totals(self._changes.pop(pair, ()))
        return numbers[totals > 0].tolist()

    def settle(self, pair: Pair) -> None:
        """Forgets the pair if all that is written down comes to nothing."""
        if not _totals(self._changes.get(pair, ()))[1].any():
            self._changes.pop(pair, None)


def _totals(changes: int | Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The words that are written down, and how many more occurrences they come to."""
    noted = np.array([changes] if isinstance(changes, int) else changes, dtype=np.int32)
    numbers, where = np.unique(np.where(noted < 0, ~noted, noted), return_inverse=True)
    return numbers, np.bincount(where, np.where(noted < 0, -1, 1))


class Occurrences:
    """number of word -> occurrences of one pair, to be changed by one."""

    __slots__ = ("_changes", "_pair")

    def __init__(self, changes: dict[Pair, int | array[int]], pair: Pair) -> None:
        self._changes = changes
        self._pair = pair

    def __getitem__(self, number: int) -> int:
        return 0  # so that what is set is the difference

    def __setitem__(self, number: int, difference: int) -> None:
        change = number if difference > 0 else ~number
        known = self._changes.get(self._pair)
        if known is None:
            self._changes[self._pair] = change
        elif isinstance(known, int):
            self._changes[self._pair] = array("i", (known, change))
        else:
            known.append(change)


class Frequencies(defaultdict[Pair, int]):
    """pair of symbols -> occurrences in the text. `best` is found without looking at them all."""

    def __init__(self, *found: Mapping[Pair, int]) -> None:
        super().__init__(int, *found)
        self._changed: set[Pair] = set()
        self._heap: list[tuple[int, _Last]] = []
        self._rank()

    def __setitem__(self, pair: Pair, count: int) -> None:
        super().__setitem__(pair, count)
        self._changed.add(pair)

    def best(self) -> Pair | None:
        """The most frequent pair, and among equals the last in the alphabet; None if empty."""
        for pair in self._changed:
            if pair in self:
                heapq.heappush(self._heap, (-self[pair], _Last(pair)))
        self._changed.clear()
        if len(self._heap) > 2 * len(self) + 1000:
            self._rank()
        while self._heap:
            count, last = self._heap[0]
            if self.get(last.pair) == -count:
                return last.pair
            heapq.heappop(self._heap)  # it has changed, or gone, since
        return None

    def _rank(self) -> None:
        self._heap = [(-count, _Last(pair)) for pair, count in self.items()]
        heapq.heapify(self._heap)


class _Last:
    """A pair that comes before another if it is later in the alphabet."""

    __slots__ = ("pair",)

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def __lt__(self, other: _Last) -> bool:
        return self.pair > other.pair


def _take_in(counter: Counter[str]) -> tuple[Words, Places, defaultdict[Pair, int]]:
    """Moves the counted words over, as symbols; and the frequencies of their pairs."""
    words, places, frequencies = Words(), Places(), defaultdict[Pair, int](int)
    for number in range(len(counter)):
        text, count = counter.popitem()  # taken out, so that no word is there twice
        word = (*text[:-1], intern(text[-1] + END))
        words.append(word, count)
        for pair in pairwise(word):
            frequencies[pair] += count
            places[pair][number] = 1
    return words, places, frequencies


def find_merges(
    words: Words, places: Places, everything: defaultdict[Pair, int], most: int
) -> Iterator[Pair]:
    """The merges in their order; `everything` has the frequencies of all pairs.

    As in subword-nmt, the search looks only at pairs above a threshold, and at all of them again
    when the best falls below it.
    """
    threshold = max(everything.values(), default=0) / 10
    frequencies = Frequencies(everything)
    for step in range(most):
        best = frequencies.best()
        if best is None or (step and frequencies[best] < threshold):
            prune_stats(frequencies, everything, threshold)
            for pair in [pair for pair, count in everything.items() if not count]:
                del everything[pair]
                places.settle(pair)
            frequencies = Frequencies(everything)
            if (best := frequencies.best()) is None:
                return
            threshold = frequencies[best] * step / (step + 10000.0)
            prune_stats(frequencies, everything, threshold)
        if frequencies[best] < RAREST:
            return
        yield best
        changes = words.replace(best, places.take(best))
        while some := list(islice(changes, 4096)):
            update_pair_statistics(best, some, frequencies, places)
        frequencies[best] = 0
        if step % 100 == 0:
            prune_stats(frequencies, everything, threshold)
