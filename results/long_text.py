"""Texts of long.md, from the folder of real text: python results/long_text.py DATA OUT.

- OUT/manuals: manuals in runs of 20 lines, between blank ones.
- OUT/captions, OUT/tatoeba: Multi30k with both test sets, and 20,000 sentences of Tatoeba.
- OUT/wikitext: WikiText-2, for ``fairseq-preprocess --only-source``.  DATA has no test set of it,
  so half of the validation set is cut in two, between articles.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

LANGUAGES = ("en", "de")
SETS = ("train", "valid", "test")
RUN = 20  # lines of one manual, as the folder says
CAPTIONS = {
    "train": ["train"],
    "valid": ["val"],
    "test": ["test_2016_flickr", "test_2017_flickr"],
}
TATOEBA = 20_000
#: Lines of WikiText-2's validation set where the sets of ours end.
ENDS = 872, 1876


def lines(path: Path) -> list[str]:
    """The lines of a file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def manuals(data: Path, name: str) -> Iterator[list[tuple[str, str]]]:
    """Yield documents of a set as pairs of lines."""
    sides = ([" ".join(line.split()) for line in lines(data / f"{name}.{lang}.gz")]
             for lang in LANGUAGES)  # fmt: skip
    pairs = [pair for pair in zip(*sides, strict=True) if all(pair)]
    for first in range(0, len(pairs), RUN):
        yield pairs[first : first + RUN]


def write(out: Path, texts: dict[str, Sequence[str]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def main(data: Path, out: Path) -> None:
    """Write train, valid and test of all texts."""
    documents = {name: [*manuals(data / "manuals_en_de", name)] for name in SETS}
    held_out = {*chain(*documents["valid"], *documents["test"])}
    for name, of in documents.items():
        kept = ([p for p in one if name != "train" or p not in held_out] for one in of)
        both = [pair for one in kept for pair in (*one, ("", ""))]
        sides = zip(LANGUAGES, zip(*both, strict=True), strict=True)
        write(out / "manuals", {f"{name}.{lang}": side for lang, side in sides})
        for lang in LANGUAGES:
            files = [data / "multi30k" / f"{file}.{lang}.gz" for file in CAPTIONS[name]]
            write(out / "captions", {f"{name}.{lang}": [*chain(*map(lines, files))]})
            sentences = lines(data / "tatoeba_en_de" / f"{name}.{lang}.gz")[:TATOEBA]
            write(out / "tatoeba", {f"{name}.{lang}": sentences})
    wiki = {name: lines(data / "wikitext2" / f"{name}.txt.gz") for name in ("train", "valid")}
    first, second = ENDS
    valid, test = wiki["valid"][:first], wiki["valid"][first:second]
    write(out / "wikitext", {"train": wiki["train"], "valid": valid, "test": test})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
