"""Multi30k in the stages of recipes/multi30k.sh: `python -m data_prep.multi30k_recipe`.

The same text as `python -m data_prep.multi30k`, which does it all at once: task 1, validated on
val, tested on test_2016_flickr. Variants differ in the target of the test set only.
"""

from __future__ import annotations

import sys
from functools import partial

from data_prep import plain
from data_prep.corpus_recipe import Corpus, command
from data_prep.multi30k import FOLDER, MIRROR, check_text

PROG = "data_prep.multi30k_recipe"
VARIANTS = {"test2016": "test_2016_flickr to test", "test2017": "test_2017_flickr to test"}
PAIRS = ("en-de", "de-en", "en-fr", "fr-en")
VOCABULARY = 6_000


def corpus(variant: str, pair: tuple[str, str]) -> Corpus:
    """A variant in a direction."""
    test = f"test_{variant.removeprefix('test')}_flickr"
    stems = {"train": "train", "valid": "val", "test": test}
    archives = plain.gzipped(stems, pair, f"{MIRROR}/{FOLDER}", check_text)
    copy, options = partial(plain.copy_splits, stems), {"splits": stems}
    return plain.corpus("multi30k", variant, pair, archives, VOCABULARY, copy, options)


DESCRIPTION = "One data stage of Multi30k; recipes/multi30k.sh does all of them."
main = partial(command, PROG, DESCRIPTION, VARIANTS, PAIRS, corpus)

if __name__ == "__main__":
    sys.exit(main())
