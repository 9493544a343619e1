"""Text whose characters were lost, changed or escaped between two programs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

#: Encodings in which programs of Windows and its consoles read UTF-8 by mistake, each with the
#: characters that show it in a short run: misread letters begin with them, and hardly any other
#: run of characters does.
_READ_IN = {
    "cp1252": "ÂÃâ",
    "cp1250": "Ĺ",
    "cp1251": "",
    "cp1253": "",
    "cp1256": "",
    "cp437": "├",
    "cp850": "├",
    "cp866": "",
}
#: The length of a run that shows UTF-8 whatever it begins with: two or three letters.
_LONG = 6


def _misread_in(encoding: str, starts: str) -> str:
    """A pattern of UTF-8 that was read in an encoding; control characters stand for its gaps."""
    letters = {byte: bytes([byte]).decode(encoding, "ignore") for byte in range(0x80, 0x100)}
    letters |= {byte: letters[byte] + chr(byte) for byte in range(0x80, 0xA0)}

    def any_of(first: int, last: int) -> str:
        return f"[{re.escape(''.join(letters[byte] for byte in range(first, last + 1)))}]"

    more, high = any_of(0x80, 0xBF), any_of(0x80, 0xFF)
    letter = "|".join(
        f"{any_of(first, last)}{more}{{{number}}}"
        for first, last, number in ((0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3))
    )
    shows = "|".join([*starts, f"{high}{{{_LONG}}}"])
    return f"(?<!{high})(?={shows})(?:{letter})+(?!{high})"


_MISREAD = re.compile(  # most lines have no two such characters side by side
    rf"(?=[^\x00-\x7f]{{2}})(?:{'|'.join(_misread_in(*item) for item in _READ_IN.items())})"
)
#: What a program writes for bytes that it could not read.
REPLACEMENT = "\ufffd"
#: Escapes of Moses' tokenizer (&apos;) and of HTML (&#39;, &nbsp;), Moses' split hyphens, and the
#: brackets of the Penn Treebank, often lower-cased.
ESCAPE = re.compile(
    r"&(?:[A-Za-z][A-Za-z0-9]+|#[0-9]+|#[xX][0-9A-Fa-f]+);|(?:^| )(?:@-@|(?i:-[LR][RSC]B-))(?: |$)"
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
#: A question or exclamation mark apart from its word, as in tokens, and in ordinary French.
DETACHED_END = re.compile(rf"[\w{VOWEL_SIGNS}] [!?\u061f](?: |$)")
#: Largest share of words with such an end in the vocabulary of tokenised text: abbreviations.
ABBREVIATIONS = 1 / 50


def is_detached(line: str, language: str) -> bool:
    """Whether a line has punctuation apart from its word, which its language's text has not."""
    found = DETACHED.search(line) or (language != "fr" and DETACHED_END.search(line))
    return bool(found)


def are_tokens(detached: float, lines: float) -> bool:
    """Whether a text looks like tokens, of whose lines some number is :func:`is_detached`."""
    return detached > max(2, lines / 4)


def is_attached(text: str) -> bool:
    """Whether a line or a word ends in a letter or digit and a mark, as no token does."""
    return bool(ATTACHED.search(text.rstrip()))


def are_of_other_tokens(lines: Sequence[str], vocabulary: Collection[str]) -> bool:
    """Whether most lines are ordinary text, and a vocabulary is of tokenised text."""
    known = sum(map(is_attached, vocabulary))
    is_of_tokens = known <= ABBREVIATIONS * len(vocabulary)
    return is_of_tokens and 2 * sum(map(is_attached, lines)) > len(lines)


def is_misread(line: str) -> bool:
    """Whether a line has UTF-8 that was read in another encoding, such as Ã¤ or ├ñ for ä.

    A short run counts only if it begins with a character of :data:`_READ_IN`, because «CAFÉ» and
    “…allé…” end with others.
    """
    return not line.isascii() and bool(_MISREAD.search(line))
