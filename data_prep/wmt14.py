"""WMT14 English-German and English-French, from the published archives to a folder for fairseq.

`fairseq-collab data wmt14`. Variants:

    wmt14    newstest2013 to validate, all of newstest2014 to test; 32,000 joint merges
    fairseq  what fairseq's prepare-wmt14en2de.sh --icml17, or prepare-wmt14en2fr.sh, makes of the
             same training text: every 100th pair (French: 1333rd) to validate, 40,000 joint merges,
             pairs cleaned after segmenting
    google   English-German: wmt16_en_de.tar.gz as Google published it, tokenised and segmented,
             from WMT16's training text; newstest2013 and newstest2014; the 32,768 commonest
             symbols. arXiv 2006.16362 uses this one.

English-French has 36 million pairs against 4.5 (arXiv 1706.03762). Its dictionaries are not joined,
as in fairseq's own preparation and in arXiv 2305.14380.

Published hashes: SHA-256 of TensorFlow Datasets (url_checksums/wmt14_translate.txt); MD5 of
test-full.tgz from sacreBLEU (wmt14/full), of the others from Amazon's Sockeye.
File names have the languages in the other order: de-en, fr-en.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from collab_common.errors import UserError
from collab_common.files import count_lines
from collab_common.folder import Json
from data_prep.archives import Archive
from data_prep.corpus import SUBWORD_NMT, Corpus
from data_prep.parallel_text import (
    Languages,
    Pair,
    carve,
    check_equal,
    join,
    pair_in,
    rewrite,
    without_typographic_apostrophes,
    write_segments,
)
from data_prep.published_corpus import command, tokenise_pair

PROG = "fairseq-collab data wmt14"
VARIANTS = {
    "wmt14": "newstest2013 validates",
    "fairseq": "as fairseq's script (en-de: with --icml17), every 100th (en-fr: 1333rd) training "
    "pair validates",
    "google": "Google's ready-made wmt16_en_de (en-de only)",
}
PAIRS = ("en-de", "en-fr")
#: Archives of the training text by pair, in the order of fairseq's scripts: the order decides which
#: pairs validate.
TRAINING = {
    "en-de": ("europarl-v7", "commoncrawl", "news-commentary-v9"),
    "en-fr": ("europarl-v7", "commoncrawl", "undoc.2000", "news-commentary-v9", "giga-fren"),
}
EVERY = {"en-de": (100, "100th"), "en-fr": (1333, "1333rd")}
MERGES = {"wmt14": 32_000, "fairseq": 40_000}
CLEAN = {"ratio": 1.5, "shortest": 1, "longest": 250}
GOOGLE_VOCABULARY = 32_768
_FORM: Json = {"subwords": "subword_nmt", "moses": True, "lowercased": False, "hyphens": "@-@"}


# ---- archives ------------------------------------------------------------------------------------

_STATMT = "http://www.statmt.org"
# Google asks for a confirmation on a page: download the file with a browser, and give --from.
_GOOGLE = "https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8"

# Training text: paths of an archive and of its members, and its hash; {pair} is de-en or fr-en.
_TRAINING = {
    "europarl-v7": (
        "wmt13/training-parallel-europarl-v7.tgz",
        "training/europarl-v7.{pair}.{lang}",
        "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "commoncrawl": (
        "wmt13/training-parallel-commoncrawl.tgz",
        "commoncrawl.{pair}.{lang}",
        "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "undoc.2000": (
        "wmt13/training-parallel-un.tgz",
        "un/undoc.2000.{pair}.{lang}",
        "md5:bb25a213ba9140023e4cc82c778bef53",
    ),
    "news-commentary-v9": (
        "wmt14/training-parallel-nc-v9.tgz",
        "training/news-commentary-v9.{pair}.{lang}",
        "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "giga-fren": (  # its members are gzipped, and stay so
        "wmt10/training-giga-fren.tar",
        "giga-fren.release2.fixed.{lang}.gz",
        "md5:0b12e20027d5b5f0dfcca290c72c8953",
    ),
}
_GOOGLE_STEMS = {
    "train": "train.tok.clean.bpe.32000",
    "valid": "newstest2013.tok.bpe.32000",
    "test": "newstest2014.tok.bpe.32000",
}


def _statmt(path: str, members: dict[str, str], known_hash: str) -> Archive:
    return Archive(path.rpartition("/")[2], f"{_STATMT}/{path}", members, known_hash)


def training(name: str, languages: Languages) -> Archive:
    """Return an archive of training text: NAME.LANG for both languages, English first."""
    path, member, known_hash = _TRAINING[name]
    pair = f"{languages[1]}-en"
    members = {f"{name}.{lang}": member.format(pair=pair, lang=lang) for lang in languages}
    return _statmt(path, members, known_hash)


def newstest2013(languages: Languages) -> Archive:
    """Return the archive of WMT14's development sets."""
    members = {f"newstest2013.{lang}": f"dev/newstest2013.{lang}" for lang in languages}
    return _statmt("wmt14/dev.tgz", members, "md5:88ba3fc60b2278d59277122e1c7dd6e7")


def newstest2014(languages: Languages) -> Archive:
    """Return the archive of WMT14's complete test sets, from English."""
    stem = f"test-full/newstest2014-{languages[1]}en"
    members = {
        f"newstest2014.{lang}.sgm": f"{stem}-{kind}.{lang}.sgm"
        for lang, kind in zip(languages, ("src", "ref"), strict=True)
    }
    return _statmt("wmt14/test-full.tgz", members, "md5:a8cd784e006feb32ac6f3d9ec7eb389a")


#: Tokenised and segmented: English-German, from WMT16's training text.
READY_MADE = Archive(
    "wmt16_en_de.tar.gz",
    _GOOGLE,
    {f"{k}.{lang}": f"{stem}.{lang}" for k, stem in _GOOGLE_STEMS.items() for lang in ("en", "de")},
)


# ---- text ----------------------------------------------------------------------------------------


def corpus(variant: str, languages: Languages = ("en", "de")) -> Corpus:
    """Return the corpus of a variant and a pair of languages."""
    pair = "-".join(languages)
    about = {"corpus": "wmt14", "variant": variant, "languages": list(languages)}
    test = newstest2014(languages)
    if variant == "google":
        if pair != "en-de":
            todo = "give --variant wmt14 or fairseq"
            raise UserError(f"exists only for en-de, not for {pair}", f"--variant {variant}", todo)
        return Corpus(
            languages,
            0,
            SUBWORD_NMT,
            archives=(READY_MADE, test),  # the latter for the reference as published
            make_text=_ready_made_text,
            about=about | {"note": "WMT16's training text"},
            form=_FORM,
            segmented=True,
            symbols=GOOGLE_VOCABULARY,
        )
    valid = (newstest2013(languages),) if variant == "wmt14" else ()
    return Corpus(
        languages,
        MERGES[variant],
        SUBWORD_NMT,
        archives=(*(training(name, languages) for name in TRAINING[pair]), *valid, test),
        make_text=partial(_text, variant),
        text_options={
            "train": list(TRAINING[pair]),
            "valid": "newstest2013" if valid else f"every {EVERY[pair][1]} training pair",
        },
        about=about,
        form=_FORM,
        joined=pair == "en-de",
        # After segmenting, as in fairseq's script: the lengths are those that the model sees.
        # Only what comes from the training text is shortened; newstest stays whole.
        cleaned=dict.fromkeys(("train",) if valid else ("train", "valid"), CLEAN),
    )


def _text(variant: str, folder: Path, languages: Languages) -> None:
    pair_at = partial(pair_in, folder, languages=languages)

    def tokenise(pair: Pair, target: Pair, normalise: bool = True) -> None:
        print(f"tokenising {pair[0].stem} ...", flush=True)
        tokenise_pair(pair, target, languages, normalise=normalise, aggressive_hyphens=True)

    pair = "-".join(languages)
    for stem in TRAINING[pair]:
        tokenise(pair_at(f"original/{stem}"), pair_at(f"scratch/{stem}"))
    joined = pair_at("train" if variant == "wmt14" else "scratch/joined")
    join([pair_at(f"scratch/{stem}") for stem in TRAINING[pair]], joined)
    write_segments(pair_at("original/newstest2014", suffix=".sgm"), pair_at("raw/test"))
    if variant == "wmt14":
        tokenise(pair_at("original/newstest2013"), pair_at("valid"))
        tokenise(pair_at("raw/test"), pair_at("test"))
    else:
        carve(joined, EVERY[pair][0], pair_at("train"), pair_at("valid"))
        # fairseq's script does not normalise the test set like the rest
        test = rewrite(
            pair_at("raw/test"), pair_at("scratch/test"), without_typographic_apostrophes
        )
        tokenise(test, pair_at("test"), normalise=False)


def _ready_made_text(folder: Path, languages: Languages) -> None:
    """Copy the text, and take the reference, as sacreBLEU reads it, from WMT's own archive."""
    pair_at = partial(pair_in, folder, languages=languages)
    published = pair_at("original/newstest2014", suffix=".sgm")
    sentences = write_segments(published, pair_at("raw/test"))
    for split in _GOOGLE_STEMS:
        for source, target in zip(pair_at(f"original/{split}"), pair_at(split), strict=True):
            shutil.copyfile(source, target)
    files = (pair_at("original/test")[1], published[1])
    check_equal(files, (count_lines(files[0]), sentences), "sentences")


DESCRIPTION = "Make a data folder from WMT14's archives."
main = partial(command, PROG, DESCRIPTION, VARIANTS, PAIRS, corpus)
