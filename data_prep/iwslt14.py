"""IWSLT14 (TED talks), from WIT3's archive to a folder for fairseq: `fairseq-collab data iwslt14`.

Variants:

    fairseq  what fairseq's prepare-iwslt14.sh makes: tokenised, lower-cased, every 23rd line of
             the training text to validate, five older sets together to test, 10,000 merges
    paper3   as fairseq, with hyphens split in all sets, as arXiv 2305.14380's code does.
             Its tokenised scores are higher for that: compare them with that paper's only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from collab_common.folder import Json
from data_prep import moses
from data_prep.archives import Archive, Member
from data_prep.clean_pairs import Limits, clean_pairs
from data_prep.corpus import Corpus, Work, command
from data_prep.parallel_text import (
    Languages,
    Pair,
    carve,
    check_equal,
    join,
    lines_of,
    rewrite,
    without_typographic_apostrophes,
    write_lines,
    write_segments,
)
from data_prep.prepare import Published

PROG = "fairseq-collab data iwslt14"
# Where fairseq's script fetches from. WIT3's own server (wit3.fbk.eu/archive/2014-01) is gone.
URL = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14"
PAIRS = ("de-en", "en-de", "it-en", "en-it", "en-fr")
VARIANTS = {
    "fairseq": "fairseq's own: tokenised, lower-cased",
    "paper3": "fairseq's with hyphens split: comparable with arXiv 2305.14380 only",
}
EVERY = 23
MERGES = 10_000
CLEAN = Limits(ratio=1.5, shortest=1, longest=175)
_HYPHEN = re.compile(r"(\S)-(\S)")
#: Lower-case, because fairseq's script lower-cases afterwards.
SPLIT_HYPHEN = "##at##-##at##"
# WIT3's training files carry these lines, one of each kind a talk, on both sides.
_METADATA = ("<url>", "<talkid>", "<keywords>")
_WRAPPING = re.compile("</?(?:title|description)>")


def test_sets(pair: Languages) -> tuple[str, ...]:
    """The sets that make up the test set, in this order. Italian has another TEDX set."""
    tedx = "TEDX.dev2014" if "it" in pair else "TEDX.dev2012"
    return ("TED.dev2010", tedx, "TED.tst2010", "TED.tst2011", "TED.tst2012")


def corpus(variant: str, pair: Languages) -> Corpus:
    """The corpus of a direction. Each has an archive of its own, named after it.

    English-German alone has that of the other direction: nobody serves another one.
    """
    name = "de-en" if pair == ("en", "de") else "-".join(pair)
    members = tuple(
        Member(f"train.tags.{lang}", f"{name}/train.tags.{name}.{lang}") for lang in pair
    ) + tuple(
        Member(
            f"{chosen}.{lang}.xml",
            f"{name}/IWSLT14.{chosen}.{name}.{lang}.xml",
            # two public listings of the French archive lack it
            optional="fr" in pair and "TEDX" in chosen,
        )
        for chosen in test_sets(pair)
        for lang in pair
    )
    return Corpus(
        name="iwslt14",
        variant=variant,
        languages=pair,
        archives=(Archive(f"{name}.tgz", f"{URL}/{name}.tgz", members),),
        options={
            "valid": f"every {EVERY}rd pair of the training text",
            "test": list(test_sets(pair)),
            "clean": asdict(CLEAN),
        },
        make_text=partial(_make_text, variant == "paper3"),
        vocab_size=MERGES,
        published=Published(
            form={
                "subwords": "subword_nmt",
                "moses": True,
                "lowercased": True,
                "hyphens": SPLIT_HYPHEN if variant == "paper3" else None,
            },
            joined=False,  # neither fairseq's recipe nor arXiv 2305.14380 joins the dictionaries
        ),
        note=VARIANTS["paper3"] if variant == "paper3" else "",
    )


def _make_text(split_hyphens: bool, work: Work) -> Json:
    originals, talks = work.originals("train.tags"), work.scratches("talks")
    pairs = zip(originals, talks, strict=True)
    counts = [write_lines(target, talk_lines(source)) for source, target in pairs]
    check_equal(originals, counts, "lines of text")
    tokens, cleaned = work.scratches("tokens"), work.scratches("cleaned")
    _tokenise(work, talks, tokens, split_hyphens)
    steps = {"cleaned": clean_pairs(tokens, cleaned, CLEAN)}
    steps["carved"] = carve(cleaned, EVERY, work.results("train"), work.results("valid"))
    cased = work.results("raw/test.cased")
    _write_test(work, cased)
    # a model of lower-cased text is scored against a lower-cased reference
    rewrite(cased, work.results("raw/test"), str.lower)
    mapped = rewrite(cased, work.scratches("mapped"), without_typographic_apostrophes)
    _tokenise(work, mapped, work.results("test"), split_hyphens)
    return steps


def talk_lines(path: Path) -> Iterator[str]:
    """The sentences of a train.tags file: also titles, descriptions and names of speakers.

    The file is not well-formed XML; these patterns are those of fairseq's script.
    """
    for line in lines_of(path):
        if not any(tag in line for tag in _METADATA):
            yield _WRAPPING.sub("", line)


def _write_test(work: Work, target: Pair) -> None:
    """Joins the test sets, as published."""
    parts = []
    for chosen in test_sets(work.languages):
        published = work.originals(chosen, ".xml")
        if any(path.exists() for path in published):
            parts.append(work.scratches(chosen))
            write_segments(published, parts[-1])
    join(parts, target)


def _tokenise(work: Work, source: Pair, target: Pair, split_hyphens: bool) -> None:
    tokens = work.scratches("unsplit") if split_hyphens else target
    moses.tokenise_pair(source, tokens, work.languages, normalise=False, lower=True)
    if split_hyphens:
        rewrite(tokens, target, partial(_HYPHEN.sub, rf"\1 {SPLIT_HYPHEN} \2"))


DESCRIPTION = "Makes a folder for fairseq-train from IWSLT14's talks."
main = partial(command, PROG, DESCRIPTION, VARIANTS, PAIRS, corpus)
