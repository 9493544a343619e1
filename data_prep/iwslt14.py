"""IWSLT14 (TED talks), from WIT3's archive to a folder for fairseq: `fairseq-collab data iwslt14`.

Variants:

    fairseq  what fairseq's prepare-iwslt14.sh makes: tokenised, lower-cased, every 23rd line of
             the training text to validate, five older sets together to test, 10,000 merges
    paper3   as fairseq, with hyphens split in all sets, as the code of arXiv 2305.14380 does;
             this raises tokenised scores, so compare them only with that paper's
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from data_prep.archives import Archive
from data_prep.clean_pairs import clean_pairs
from data_prep.corpus import SUBWORD_NMT, Corpus
from data_prep.parallel_text import (
    Languages,
    Pair,
    carve,
    check_equal,
    join,
    lines_of,
    pair_in,
    rewrite,
    without_typographic_apostrophes,
    write_lines,
    write_segments,
)
from data_prep.published_corpus import command, tokenise_pair

PROG = "fairseq-collab data iwslt14"
# fairseq's script downloads this. WIT3's own server (wit3.fbk.eu/archive/2014-01) is gone.
URL = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14"
PAIRS = ("de-en", "en-de", "it-en", "en-it", "en-fr")
VARIANTS = {
    "fairseq": "as fairseq's script, tokenised and lower-cased",
    "paper3": "fairseq's with hyphens split: comparable with arXiv 2305.14380 only",
}
EVERY = 23
MERGES = 10_000
CLEAN = {"ratio": 1.5, "shortest": 1, "longest": 175}
_HYPHEN = re.compile(r"(\S)-(\S)")
#: Lower-case, because fairseq's script lower-cases afterwards.
SPLIT_HYPHEN = "##at##-##at##"
# WIT3's training files carry these lines, one of each kind a talk, on both sides.
_METADATA = ("<url>", "<talkid>", "<keywords>")
_WRAPPING = re.compile("</?(?:title|description)>")


def test_sets(pair: Languages) -> tuple[str, ...]:
    """Return the sets that are joined to the test set, in order; Italian has another TEDX set."""
    tedx = "TEDX.dev2014" if "it" in pair else "TEDX.dev2012"
    return ("TED.dev2010", tedx, "TED.tst2010", "TED.tst2011", "TED.tst2012")


def archive(pair: Languages) -> Archive:
    """Return the archive of a direction; English-German is in the archive of German-English."""
    name = "de-en" if pair == ("en", "de") else "-".join(pair)
    members = {f"train.tags.{lang}": f"{name}/train.tags.{name}.{lang}" for lang in pair}
    tests = {
        f"{chosen}.{lang}.xml": f"{name}/IWSLT14.{chosen}.{name}.{lang}.xml"
        for chosen in test_sets(pair)
        for lang in pair
    }
    # two public listings of the French archive lack it
    optional = frozenset(file for file in tests if "fr" in pair and "TEDX" in file)
    return Archive(f"{name}.tgz", f"{URL}/{name}.tgz", members | tests, optional=optional)


def corpus(variant: str, pair: Languages) -> Corpus:
    """Return the corpus of a variant in one direction."""
    splits_hyphens = variant == "paper3"
    about = {"corpus": "iwslt14", "variant": variant, "languages": list(pair)}
    return Corpus(
        pair,
        MERGES,
        SUBWORD_NMT,
        archives=(archive(pair),),
        make_text=partial(_make_text, splits_hyphens),
        text_options={
            "valid": f"every {EVERY}rd pair of the training text",
            "test": list(test_sets(pair)),
            "clean": CLEAN,
        },
        about=about | ({"note": VARIANTS["paper3"]} if splits_hyphens else {}),
        form={
            "subwords": "subword_nmt",
            "moses": True,
            "lowercased": True,
            "hyphens": SPLIT_HYPHEN if splits_hyphens else None,
        },
        joined=False,  # neither fairseq's recipe nor arXiv 2305.14380 joins the dictionaries
    )


def _make_text(split_hyphens: bool, folder: Path, languages: Languages) -> None:
    pair_at = partial(pair_in, folder, languages=languages)

    def tokenise(source: Pair, target: Pair) -> None:
        tokens = pair_at("scratch/unsplit") if split_hyphens else target
        tokenise_pair(source, tokens, languages, normalise=False, lower=True)
        if split_hyphens:
            rewrite(tokens, target, partial(_HYPHEN.sub, rf"\1 {SPLIT_HYPHEN} \2"))

    originals, talks = pair_at("original/train.tags"), pair_at("scratch/talks")
    pairs = zip(originals, talks, strict=True)
    counts = [write_lines(target, talk_lines(source)) for source, target in pairs]
    check_equal(originals, counts, "lines of text")
    tokens, cleaned = pair_at("scratch/tokens"), pair_at("scratch/cleaned")
    tokenise(talks, tokens)
    clean_pairs(tokens, cleaned, **CLEAN)
    carve(cleaned, EVERY, pair_at("train"), pair_at("valid"))

    tests = []
    for chosen in test_sets(languages):
        published = pair_at(f"original/{chosen}", suffix=".xml")
        if any(path.exists() for path in published):
            tests.append(pair_at(f"scratch/{chosen}"))
            write_segments(published, tests[-1])
    cased = pair_at("raw/test.cased")
    join(tests, cased)
    # a model of lower-cased text is scored against a lower-cased reference
    rewrite(cased, pair_at("raw/test"), str.lower)
    mapped = rewrite(cased, pair_at("scratch/mapped"), without_typographic_apostrophes)
    tokenise(mapped, pair_at("test"))


def talk_lines(path: Path) -> Iterator[str]:
    """Yield the sentences of a train.tags file, also titles, descriptions and names of speakers.

    The file is not well-formed XML; the patterns are those of fairseq's script.
    """
    for line in lines_of(path):
        if not any(tag in line for tag in _METADATA):
            yield _WRAPPING.sub("", line)


DESCRIPTION = "Make a data folder from IWSLT14's talks."
main = partial(command, PROG, DESCRIPTION, VARIANTS, PAIRS, corpus)
