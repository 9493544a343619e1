"""Byte-pair encoding, learnt by subword-nmt itself; the words are counted in several processes.

Sennrich, Haddow, Birch 2016, "Neural Machine Translation of Rare Words with Subword Units"; the
program is github.com/rsennrich/subword-nmt (MIT), which the papers' recipes use.
`data_prep.apply_bpe` applies the codes.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from subword_nmt.learn_bpe import learn_bpe

from collab_common.errors import UserError
from data_prep.streams import Block, ordered, read_blocks

COUNTED_LINES = 1 << 14  # at a time: words repeat, so more is cheaper


def learn(texts: Sequence[Path], merges: int, codes: Path, *, jobs: int = 1) -> dict[str, int]:
    """Learns `merges` merges on all the texts together and writes them to `codes`.

    Counting the words takes `jobs` processes; the merges are found in this one. Returns "lines",
    "tokens" and "types" (words between blanks) read, and the "merges" found: fewer than asked
    for if no pair is left that occurs twice. Raises UserError for texts without words of two
    letters.
    """
    if merges < 1:
        raise UserError(f"{merges} merges: there must be at least one")
    lines, counter = count_text(texts, jobs)
    if max(map(len, counter), default=0) < 2:
        raise UserError("no words to learn from", texts[0])
    written = io.StringIO()
    dictionary = (f"{word} {count}" for word, count in counter.items())
    learn_bpe(dictionary, written, merges, is_dict=True)
    codes.write_text(written.getvalue(), encoding="utf-8", newline="\n")
    found = written.getvalue().count("\n") - 1  # less the version
    return {"lines": lines, "tokens": counter.total(), "types": len(counter), "merges": found}


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
