"""Text in documents, from the folder of real text: python results/long_text.py DATA OUT.

Training text: debates of Europarl and news of 2008 to 2012 in their order, manuals in runs of 20
lines, captions and single sentences. Validation: newstest2013; test: newstest2014 and 2015. A blank
line ends a document, for `fairseq-collab data prepare --text OUT --documents 1,2,4,8,16`.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

LANGUAGES = ("en", "de")
MANUALS, TATOEBA = 60_000, 50_000  # lines: with all of them the news would be few
RUN = 20  # lines of one manual, as the folder says
#: Files of a set, the lines of it that are taken, and the lines of a document (None: all of them).
TRAIN = (
    ("new_en_de/train", slice(145_000, 161_000), None),  # Europarl
    ("mix_en_de/newstest0812", slice(None), None),
    ("manuals_en_de/train", slice(MANUALS), RUN),
    ("multi30k/train", slice(None), 1),
    ("tatoeba_en_de/train", slice(TATOEBA), 1),
)
VALID = (("newstest/newstest2013", slice(None), None),)
TEST = tuple(
    (f"newstest2014_2015_en_de/{part}", slice(None), None) for part in ("validation", "test")
)


def main(data: Path, out: Path) -> None:
    """Write train, valid and test in both languages."""
    out.mkdir(parents=True, exist_ok=True)
    held_out = {
        pair for parts in (VALID, TEST) for document in read(data, parts) for pair in document
    }
    for name, parts in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        texts = [(out / f"{name}.{lang}").open("w", encoding="utf-8") for lang in LANGUAGES]
        for document in read(data, parts):
            kept = [pair for pair in document if name != "train" or pair not in held_out]
            for pair in (*kept, ("", "")):
                for text, line in zip(texts, pair, strict=True):
                    text.write(line + "\n")
        for text in texts:
            text.close()


def read(
    data: Path, parts: tuple[tuple[str, slice, int | None], ...]
) -> Iterator[list[tuple[str, str]]]:
    """Yield the documents of a set as pairs of lines."""
    for stem, taken, length in parts:
        sides = []
        for lang in LANGUAGES:
            with gzip.open(
                data / f"{stem}.{lang}.gz", "rt", encoding="utf-8", newline="\n"
            ) as lines:
                sides.append(
                    [" ".join(line.split()) for line in islice(lines, taken.start, taken.stop)]
                )
        pairs = [pair for pair in zip(*sides, strict=True) if all(pair)]
        step = length or len(pairs)
        for first in range(0, len(pairs), step):
            yield pairs[first : first + step]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
