"""Tatoeba's sentence pairs, to a folder for fairseq: `python -m data_prep.tatoeba`. Variants:

    opus   the pairs that OPUS publishes, de-duplicated and split here: a pair's English sentence
           alone decides where it goes, and train has no sentence of valid or test on either side
    split  train, valid and test as STEM.LANG.gz, split by their makers; give --from DIR

Licence of the text: CC BY 2.0, attribution to Tatoeba.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from collab_common.folder import Json
from data_prep import plain
from data_prep.archives import Member
from data_prep.corpus_recipe import Archive, Corpus, command
from data_prep.parallel_text import check_published, lines_of
from data_prep.work import SPLITS, Work

PROG = "data_prep.tatoeba"
VARIANTS = {"opus": "as OPUS publishes it, split here", "split": "your own train, valid, test"}
PAIRS = ("en-de", "de-en")
VOCABULARY = 8_000
# The release is named, so that everybody gets the same text; the address was not tried from here.
URL = "https://object.pouta.csc.fi/OPUS-Tatoeba/v2023-04-12/moses/de-en.txt.zip"
#: One English sentence in so many goes to valid, and as many to test.
ONE_IN = 150


def corpus(variant: str, pair: tuple[str, str]) -> Corpus:
    """A variant in a direction."""
    if variant == "split":
        stems = {split: split for split in SPLITS}
        archives = plain.gzipped(stems, pair, "")
        split_text: plain.SplitText = partial(plain.copy_splits, stems)
        options: Json = {"splits": stems}
    else:
        members = tuple(Member(f"all.{lang}", (f"Tatoeba.de-en.{lang}",)) for lang in sorted(pair))
        archives = (Archive("de-en.txt.zip", URL, members),)
        split_text, options = split_pairs, {"valid_and_test": f"one in {ONE_IN} each"}
    return plain.corpus("tatoeba", variant, pair, archives, VOCABULARY, split_text, options)


def split_pairs(work: Work) -> Json:
    """Writes the three sets; memory: 16 bytes and a set's overhead for each pair."""
    published = check_published(work.originals("all"))
    held_out = {
        _digest(sentence) for split, pair in _pairs(work) if split != "train" for sentence in pair
    }
    counts = {"read": 0, "duplicate": 0, "empty": 0, "held_out": 0} | dict.fromkeys(SPLITS, 0)
    seen: set[bytes] = set()
    with ExitStack() as stack:
        streams = {
            split: [
                stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
                for path in work.scratches(split)
            ]
            for split in SPLITS
        }
        for split, pair in _pairs(work):
            counts["read"] += 1
            digest = _digest("\n".join(pair))
            if not all(sentence.strip() for sentence in pair):
                counts["empty"] += 1
            elif split == "train" and any(_digest(sentence) in held_out for sentence in pair):
                counts["held_out"] += 1
            elif digest in seen:
                counts["duplicate"] += 1
            else:
                seen.add(digest)
                counts[split] += 1
                for stream, sentence in zip(streams[split], pair, strict=True):
                    stream.write(sentence + "\n")
    return {"published": published, "split": counts}


def _pairs(work: Work) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each pair, and the set that its English sentence decides on."""
    english = work.languages.index("en")
    for pair in zip(*map(lines_of, work.originals("all")), strict=True):
        number = int.from_bytes(_digest(pair[english])[:8], "big") % ONE_IN
        yield {0: "valid", 1: "test"}.get(number, "train"), pair


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()[:16]


DESCRIPTION = "One data stage of Tatoeba; recipes/tatoeba.sh does all of them."
main = partial(command, PROG, DESCRIPTION, VARIANTS, PAIRS, corpus)

if __name__ == "__main__":
    sys.exit(main())
