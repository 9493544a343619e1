"""Where WMT14's text is published, what is needed of it, and the hashes that others publish.

SHA-256 are those of TensorFlow Datasets (url_checksums/wmt14_translate.txt). MD5: of
test-full.tgz sacreBLEU's (its entry of wmt14/full), of the others those of Amazon's Sockeye.
Languages stand the other way round in file names: de-en, fr-en.
"""

from __future__ import annotations

from data_prep.archives import Member
from data_prep.corpus import Archive
from data_prep.parallel_text import Languages

_STATMT = "http://www.statmt.org"
# Answers with a page that asks for a confirmation: take the file with a browser, give --from.
_GOOGLE = "https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8"


# Of training text: an archive's address, its members (in a language, of a pair such as de-en), and
# what is known of it.
_TRAINING = {
    "europarl-v7": (
        f"{_STATMT}/wmt13/training-parallel-europarl-v7.tgz",
        "training/europarl-v7.{pair}.{lang}",
        "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "commoncrawl": (
        f"{_STATMT}/wmt13/training-parallel-commoncrawl.tgz",
        "commoncrawl.{pair}.{lang}",
        "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "undoc.2000": (
        f"{_STATMT}/wmt13/training-parallel-un.tgz",
        "un/undoc.2000.{pair}.{lang}",
        "md5:bb25a213ba9140023e4cc82c778bef53",
    ),
    "news-commentary-v9": (
        f"{_STATMT}/wmt14/training-parallel-nc-v9.tgz",
        "training/news-commentary-v9.{pair}.{lang}",
        "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "giga-fren": (  # its members are gzipped, and stay so
        f"{_STATMT}/wmt10/training-giga-fren.tar",
        "giga-fren.release2.fixed.{lang}.gz",
        "md5:0b12e20027d5b5f0dfcca290c72c8953",
    ),
}
_GOOGLE_STEMS = {
    "train": "train.tok.clean.bpe.32000",
    "valid": "newstest2013.tok.bpe.32000",
    "test": "newstest2014.tok.bpe.32000",
}


def training(name: str, languages: Languages) -> Archive:
    """A corpus' archive: NAME.LANG for both languages, English first."""
    url, path, known_hash = _TRAINING[name]
    pair = f"{languages[1]}-en"
    members = tuple(
        Member(f"{name}.{lang}", path.format(pair=pair, lang=lang)) for lang in languages
    )
    return Archive(url.rpartition("/")[2], url, members, known_hash)


def newstest2013(languages: Languages) -> Archive:
    """WMT14's development sets."""
    members = tuple(
        Member(f"newstest2013.{lang}", f"dev/newstest2013.{lang}") for lang in languages
    )
    known_hash = "md5:88ba3fc60b2278d59277122e1c7dd6e7"
    return Archive("dev.tgz", f"{_STATMT}/wmt14/dev.tgz", members, known_hash)


def newstest2014(languages: Languages) -> Archive:
    """WMT14's test sets, whole, from English."""
    members = tuple(
        Member(
            f"newstest2014.{lang}.sgm",
            f"test-full/newstest2014-{languages[1]}en-{kind}.{lang}.sgm",
        )
        for lang, kind in zip(languages, ("src", "ref"), strict=True)
    )
    known_hash = "md5:a8cd784e006feb32ac6f3d9ec7eb389a"
    return Archive("test-full.tgz", f"{_STATMT}/wmt14/test-full.tgz", members, known_hash)


#: Tokenised and segmented: English-German, from WMT16's training text.
READY_MADE = Archive(
    "wmt16_en_de.tar.gz",
    _GOOGLE,
    tuple(
        Member(f"{split}.{lang}", f"{stem}.{lang}")
        for split, stem in _GOOGLE_STEMS.items()
        for lang in ("en", "de")
    ),
)
