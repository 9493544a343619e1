"""Text in fairseq's binary form: an index of sentences (.idx) and their words' numbers (.bin)."""

from __future__ import annotations

from pathlib import Path

from collab_common.errors import UserError

#: The first bytes of an index that reads its text by memory map, fairseq's default.
MAGIC = b"MMIDIDX\0\0"
#: Bytes of a word's number by fairseq's code of the type.
_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 8, 8: 2, 9: 4, 10: 8}
_TODO = "binarise the text again"


def sentences_in(index: Path) -> int:
    """Return the number of sentences in an index, and check that the index fits its text.

    The text must end with the last sentence of the index, to the byte.  An index of fairseq has a
    magic number (9 bytes), a version (8), a type (1) and the number of sentences (8), then 4 bytes
    for the size of each sentence, and 8 for its offset.

    Raises:
        UserError: the file is no such index, or the index or its text is cut off.
    """
    with index.open("rb") as stream:
        header = stream.read(26)
        count, end = int.from_bytes(header[18:], "little"), 0
        if len(header) < 26 or header[:9] != MAGIC or header[17] not in _ITEM_BYTES:
            raise UserError("is not an index of binarised text", index, _TODO)
        if (held := index.stat().st_size) != 26 + 12 * count:
            problem = (
                f"has {held:,} bytes, but for {count:,} sentences it must have {26 + 12 * count:,}"
            )
            raise UserError(problem, index, _TODO)
        if count:
            stream.seek(26 + 4 * (count - 1))
            size = int.from_bytes(stream.read(4), "little")
            stream.seek(26 + 12 * count - 8)
            offset = int.from_bytes(stream.read(8), "little", signed=True)
            end = offset + size * _ITEM_BYTES[header[17]]
    if end != (held := index.with_suffix(".bin").stat().st_size):
        raise UserError(f"ends at byte {end:,}, but its text has {held:,} bytes", index, _TODO)
    return count
