"""Byte-pair encoding of text in tokens, by subword-nmt itself.

Sennrich, Haddow, Birch 2016, "Neural Machine Translation of Rare Words with Subword Units"; the
program is github.com/rsennrich/subword-nmt (MIT), which the papers' recipes use. Codes are merges
in their order; a word is the units that they leave, all but its last marked with '@@'.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from collab_common.errors import UserError
from data_prep.parallel_text import Pair, convert

SEPARATOR = "@@"
CODES = "code"  # the file's name, as in fairseq's scripts


def learn(texts: Pair, merges: int, codes: Path) -> int:
    """Learns merges on both texts together, in this order; how many were found.

    Raises UserError for a text without a word of two letters.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(path.open(encoding="utf-8", newline="\n")) for path in texts]
        out = stack.enter_context(codes.open("w", encoding="utf-8", newline="\n"))
        try:
            learn_bpe(chain(*files), out, merges)
        except ValueError as error:  # no pair of symbols
            raise UserError("no words to learn from", texts[0]) from error
    with codes.open("rb") as stream:
        return sum(1 for _ in stream) - 1


def apply(codes: Path, sources: Pair, targets: Pair) -> int:
    """Segments both sides of a text; the number of subwords."""
    segment = segmenter(codes)
    pairs = zip(sources, targets, strict=True)
    return sum(convert(*pair, segment)["tokens"] for pair in pairs)


def segmenter(codes: Path) -> Callable[[str], str]:
    """Segments a line of tokens. Raises UserError for a file that holds no codes."""
    try:
        with codes.open(encoding="utf-8", newline="\n") as stream:
            segment: Callable[[str], str] = BPE(stream, separator=SEPARATOR).segment
    except (SystemExit, ValueError) as error:  # the program ends where a line is no merge
        todo = "learn them again, or give a file that subword-nmt wrote"
        raise UserError("holds no BPE codes", codes, todo) from error
    return segment


def are_codes(path: Path) -> bool:
    """Whether a file starts as codes of subword-nmt do."""
    with path.open("rb") as file:
        return file.read(9) == b"#version:"
