"""Text whose characters were lost, changed or escaped between two programs."""

from __future__ import annotations

import re

# the characters of Windows-1252 as those of Latin-1 with the same byte; five bytes have none
_AS_LATIN_1 = {
    ord(char): byte
    for byte in range(0x80, 0xA0)
    if (char := bytes([byte]).decode("cp1252", "ignore"))
}
_NOT_ASCII = re.compile("[\x80-\xff]+")
#: What a program writes for bytes that it could not read.
REPLACEMENT = "\ufffd"
#: Escapes of Moses' tokenizer (&apos;) and of HTML (&#39;, &nbsp;), and Moses' split hyphens.
ESCAPE = re.compile(r"&(?:[A-Za-z]{2,}|#[0-9]+|#[xX][0-9A-Fa-f]+);|(?:^| )@-@(?: |$)")


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
