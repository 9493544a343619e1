"""Text whose characters were lost, changed or escaped between two programs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

# the characters of Windows-1252 as those of Latin-1 with the same byte; five bytes have none
_AS_LATIN_1 = {
    ord(char): byte
    for byte in range(0x80, 0xA0)
    if (char := bytes([byte]).decode("cp1252", "ignore"))
}
_NOT_ASCII = re.compile("[\x80-\xff]+")
#: What a program writes for bytes that it could not read.
REPLACEMENT = "\ufffd"
#: Escapes of Moses' tokenizer (&apos;) and of HTML (&#39;, &nbsp;), Moses' split hyphens, and the
#: brackets of the Penn Treebank, often lower-cased.
ESCAPE = re.compile(
    r"&(?:[A-Za-z]{2,}|#[0-9]+|#[xX][0-9A-Fa-f]+);|(?:^| )(?:@-@|(?i:-[LR][RSC]B-))(?: |$)"
)
#: Vowel signs and accents: characters of words, such as those of Hindi, which are not in `\w`.
VOWEL_SIGNS = "".join(
    char for char in map(chr, range(0x300, 0x3000)) if unicodedata.category(char).startswith("M")
)
#: Marks at ends of sentences, also those of Hindi, Urdu, Amharic and Armenian.
ENDS = ".!?\u2026\u0589\u061f\u06d4\u0964\u0965\u1362\u1367"
#: The end of a sentence whose last mark is still at its word; tokenisers split it off.
ATTACHED = re.compile(rf"[^\s!-/:-@\[-`{{-~][{ENDS}\u3002\uff01\uff1f]$")
#: A full stop or a comma apart from its word, as in tokens, and in no language's ordinary text.
DETACHED = re.compile(rf"[\w{VOWEL_SIGNS}] [.,\u3001\u3002\u060c](?: |$)")
#: Largest share of words with such an end in the vocabulary of tokenised text: abbreviations.
ABBREVIATIONS = 1 / 50


def is_attached(text: str) -> bool:
    """Whether a line or a word ends in a letter or digit and a mark, as no token does."""
    return bool(ATTACHED.search(text.rstrip()))


def are_of_other_tokens(lines: Sequence[str], vocabulary: Collection[str]) -> bool:
    """Whether most lines are ordinary text, and a vocabulary is of tokenised text."""
    known = sum(map(is_attached, vocabulary))
    is_of_tokens = known <= ABBREVIATIONS * len(vocabulary)
    return is_of_tokens and 2 * sum(map(is_attached, lines)) > len(lines)


def is_misread(line: str) -> bool:
    """Return whether a line has UTF-8 that was read as Latin-1 or Windows-1252, such as Ã¤ for ä.

    A pair of characters counts only if it begins with Â or Ã, because «CAFÉ» ends with another
    pair.
    """
    if line.isascii():
        return False
    for run in _NOT_ASCII.findall(line.translate(_AS_LATIN_1)):
        try:
            run.encode("latin-1").decode("utf-8")
        except UnicodeDecodeError:
            continue
        if len(run) > 2 or run[0] in "ÂÃ":
            return True
    return False
