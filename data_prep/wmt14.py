"""WMT14 English-German, from the published archives to a folder for fairseq.

`python -m data_prep.wmt14`. Variants:

    wmt14    europarl v7, commoncrawl and news-commentary v9; newstest2013 to validate, all of
             newstest2014 to test; 32,000 joint merges
    fairseq  what fairseq's prepare-wmt14en2de.sh --icml17 makes of the same training text: every
             100th pair to validate, 40,000 joint merges, pairs cleaned after segmenting
    google   wmt16_en_de.tar.gz as Google published it, tokenised and segmented, from WMT16's
             training text; newstest2013 and newstest2014; the 32,768 commonest symbols.
             arXiv 2006.16362 uses this one.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial

from collab_common.folder import Json
from data_prep import clean_pairs, moses
from data_prep.archives import Member
from data_prep.corpus_recipe import Archive, Corpus, command
from data_prep.fetch import Published
from data_prep.parallel_text import (
    Pair,
    carve,
    check_equal,
    check_published,
    join,
    lines_of,
    without_typographic_apostrophes,
    write_lines,
)
from data_prep.sgm import write_segments
from data_prep.work import SPLITS, Work, with_bpe

PROG = "data_prep.wmt14"
STATMT = "http://www.statmt.org"
VARIANTS = {
    "wmt14": "newstest2013 validates",
    "fairseq": "as fairseq's script with --icml17: every 100th training pair validates",
    "google": "Google's wmt16_en_de, ready-made",
}
PAIRS = ("en-de",)
LANGUAGES = ("en", "de")
CORPORA = ("europarl-v7", "commoncrawl", "news-commentary-v9")
EVERY = 100
MERGES = {"wmt14": 32_000, "fairseq": 40_000}
CLEAN: Json = {"ratio": 1.5, "shortest": 1, "longest": 250}
GOOGLE_VOCABULARY = 32_768
# Answers with a page that asks for a confirmation: take the file with a browser, give --from.
GOOGLE = "https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8"
_GOOGLE_STEMS = {
    "train": "train.tok.clean.bpe.32000",
    "valid": "newstest2013.tok.bpe.32000",
    "test": "newstest2014.tok.bpe.32000",
}


def _both(name: str, path: str) -> tuple[Member, ...]:
    """A member for each language; `path` has {} for it. Languages in file names: de-en."""
    return tuple(Member(f"{name}.{lang}", (path.format(lang),)) for lang in LANGUAGES)


# Sizes and SHA-256: TensorFlow Datasets, url_checksums/wmt14_translate.txt.
# MD5: sacreBLEU's entry of wmt14/full; of dev.tgz, that of Amazon's Sockeye.
_TRAINING = (
    Archive(
        "training-parallel-europarl-v7.tgz",
        f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz",
        _both("europarl-v7", "training/europarl-v7.de-en.{}"),
        Published(657_632_379, "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"),
    ),
    Archive(
        "training-parallel-commoncrawl.tgz",
        f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz",
        _both("commoncrawl", "commoncrawl.de-en.{}"),
        Published(918_311_367, "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"),
    ),
    Archive(
        "training-parallel-nc-v9.tgz",
        f"{STATMT}/wmt14/training-parallel-nc-v9.tgz",
        _both("news-commentary-v9", "training/news-commentary-v9.de-en.{}"),
        Published(80_418_416, "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"),
    ),
)
_TEST = Archive(
    "test-full.tgz",
    f"{STATMT}/wmt14/test-full.tgz",
    (
        Member("newstest2014.en.sgm", ("test-full/newstest2014-deen-src.en.sgm",)),
        Member("newstest2014.de.sgm", ("test-full/newstest2014-deen-ref.de.sgm",)),
    ),
    Published(md5="a8cd784e006feb32ac6f3d9ec7eb389a"),
)
_VALID = Archive(
    "dev.tgz",
    f"{STATMT}/wmt14/dev.tgz",
    tuple(
        Member(
            f"newstest2013.{lang}",
            # plain in the archives that we know of; in SGM, each language is a source somewhere
            (f"dev/newstest2013.{lang}", f"dev/newstest2013-src.{lang}.sgm"),
        )
        for lang in LANGUAGES
    ),
    Published(md5="88ba3fc60b2278d59277122e1c7dd6e7"),
)
_READY = Archive(
    "wmt16_en_de.tar.gz",
    GOOGLE,
    tuple(m for split, stem in _GOOGLE_STEMS.items() for m in _both(split, stem + ".{}")),
)
_ARCHIVES = {
    "wmt14": (*_TRAINING, _VALID, _TEST),
    "fairseq": (*_TRAINING, _TEST),
    "google": (_READY, _TEST),  # the latter for the reference as published
}


def corpus(variant: str, pair: tuple[str, str] = LANGUAGES) -> Corpus:
    """A variant."""
    google = variant == "google"
    options: Json = {
        "train": list(CORPORA),
        "valid": "newstest2013" if variant == "wmt14" else f"every {EVERY}th training pair",
        "clean": CLEAN,
        "merges": MERGES.get(variant),
    }
    return Corpus(
        name="wmt14",
        variant=variant,
        languages=pair,
        archives=_ARCHIVES[variant],
        options={} if google else options,
        make_text=_ready_made_text if google else partial(_text, variant),
        form={"subwords": "subword_nmt", "moses": True, "lowercased": False, "hyphens": None},
        vocabulary=GOOGLE_VOCABULARY if google else None,
        note="WMT16's training text" if google else "",
    )


def _text(variant: str, work: Work) -> Json:
    steps: Json = {"published": {}, "tokenised": {}}
    for stem in CORPORA:
        steps["published"][stem] = check_published(work.originals(stem))
        steps["tokenised"][stem] = _tokenise(work, work.originals(stem), stem)
    joined = "train" if variant == "wmt14" else "joined"
    join([work.scratches(stem) for stem in CORPORA], work.scratches(joined))
    if variant == "wmt14":
        valid = _plain(work, work.originals("newstest2013"))
        steps["published"]["valid"] = check_published(valid)
        steps["tokenised"]["valid"] = _tokenise(work, valid, "valid")
    else:
        train, valid = work.scratches("train"), work.scratches("valid")
        steps["carved"] = carve(work.scratches("joined"), EVERY, train, valid)
        for path in work.scratches("joined"):
            path.unlink()
    steps["test"] = _write_test(work)
    steps["tokenised"]["test"] = _tokenise_test(work, normalise=variant == "wmt14")
    steps["subwords"] = with_bpe(work, MERGES[variant])
    # After segmenting, as fairseq's script does: the lengths are those that the model sees.
    # Only what was carved from the training text is shortened with it; newstest stays whole.
    cleaned = ("train",) if variant == "wmt14" else ("train", "valid")
    steps["cleaned"] = {split: _clean(work, split) for split in cleaned}
    return steps


def _tokenise(work: Work, pair: Pair, stem: str, normalise: bool = True) -> Json:
    print(f"tokenising {stem} ...", flush=True)
    steps = {"normalise": normalise, "remove_non_printing": normalise, "aggressive_hyphens": True}
    return moses.tokenise_pair(pair, work.scratches(stem), LANGUAGES, jobs=work.jobs, **steps)


def _plain(work: Work, pair: Pair) -> Pair:
    """The pair itself, or its segments if it is SGM."""
    with pair[0].open("rb") as stream:
        if not stream.read(20).lstrip().startswith(b"<"):
            return pair
    plain = work.scratches("plain")
    write_segments(pair, plain)
    return plain


def _write_test(work: Work) -> int:
    """raw/test, as sacreBLEU reads it out of the same archive; the number of sentences."""
    return write_segments(work.originals("newstest2014", ".sgm"), work.results("raw/test"))


def _tokenise_test(work: Work, *, normalise: bool) -> Json:
    """fairseq's script does not normalise the test set like the rest; the variant wmt14 does."""
    for raw, mapped in zip(work.results("raw/test"), work.scratches("mapped"), strict=True):
        lines = lines_of(raw)
        write_lines(mapped, lines if normalise else without_typographic_apostrophes(lines))
    return _tokenise(work, work.scratches("mapped"), "test", normalise)


def _clean(work: Work, split: str) -> Json:
    dirty = work.scratches(f"{split}.dirty")
    for path, aside in zip(work.results(split), dirty, strict=True):
        path.rename(aside)
    return clean_pairs.clean_pairs(dirty, work.results(split), **CLEAN, jobs=work.jobs)


def _ready_made_text(work: Work) -> Json:
    """Nothing is left to do but to check and to copy."""
    steps: Json = {split: check_published(work.originals(split)) for split in SPLITS}
    steps["reference"] = _write_test(work)
    files = (work.originals("test")[1], work.original / "newstest2014.de.sgm")
    check_equal(files, (steps["test"]["kept"], steps["reference"]), "sentences")
    for split in SPLITS:
        for source, target in zip(work.originals(split), work.results(split), strict=True):
            shutil.copyfile(source, target)
    return steps


DESCRIPTION = "One data stage of WMT14 English-German; recipes/wmt14_en_de.sh does them all."
main = partial(command, PROG, DESCRIPTION, VARIANTS, PAIRS, corpus)

if __name__ == "__main__":
    sys.exit(main())
