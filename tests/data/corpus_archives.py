"""Archives in the layout of the published corpora, made from other text."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from data_prep.corpus import Corpus
from data_prep.published_corpus import find_archives, make, make_text


def tgz(members: Mapping[str, bytes]) -> bytes:
    """A .tgz with these files, the same bytes every time."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def sgm(lines: Sequence[str], kind: str, lang: str) -> bytes:
    """A WMT test set: `kind` is src or ref."""
    head = f'<{kind}set setid="newstest2014" srclang="any" trglang="{lang}">'
    segments = [f'<seg id="{i}">{line}</seg>' for i, line in enumerate(lines, 1)]
    return text([head, '<doc docid="1" genre="news">', "<p>", *segments, "</p>", "</doc>"])


def ted_xml(lines: Sequence[str], lang: str) -> bytes:
    """A TED test set, as WIT3 wrote them: spaces inside the segments, metadata before."""
    segments = [f'<seg id="{i}"> {line} </seg>' for i, line in enumerate(lines, 1)]
    head = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", f'<refset trglang="{lang}">']
    meta = ['<doc docid="1">', "<title>Not a segment</title>", "<keywords>none</keywords>"]
    return text([*head, *meta, *segments, "</doc>", "</refset>", "</mteval>"])


def ted_tags(lines: Sequence[str], talk: int = 40) -> bytes:
    """train.tags.*: talks of `talk` lines, each with its metadata before."""
    written: list[str] = []
    for start in range(0, len(lines), talk):
        first, second, *rest = lines[start : start + talk]
        written += ["<url>http://www.ted.com/talks/x.html</url>", "<keywords>talks</keywords>"]
        written += [f"<talkid>{start}</talkid>", f"<title>{first}</title>"]
        written += [f"<description>{second}</description>", *rest]
    return text(written)


def full_test(test: Mapping[str, list[str]], pair: str = "de-en") -> bytes:
    """WMT14's archive of test sets."""
    return tgz(
        {
            f"test-full/newstest2014-{pair.replace('-', '')}-{kind}.{g}.sgm": sgm(test[g], kind, g)
            for kind in ("src", "ref")
            for g in test
        }
    )


def wmt14_en_fr(
    corpora: Mapping[str, Mapping[str, Sequence[str]]], test: Mapping[str, list[str]]
) -> dict[str, bytes]:
    """The archives of fairseq's prepare-wmt14en2fr.sh, some of which hold German-English, too.

    `corpora` are europarl, crawl, un, news and giga.
    """
    both = ("en", "fr")
    paths = {
        "europarl": ("training-parallel-europarl-v7.tgz", "training/europarl-v7"),
        "crawl": ("training-parallel-commoncrawl.tgz", "commoncrawl"),
        "un": ("training-parallel-un.tgz", "un/undoc.2000"),
        "news": ("training-parallel-nc-v9.tgz", "training/news-commentary-v9"),
    }
    archives = {
        name: tgz(
            {f"{path}.fr-en.{g}": text(corpora[corpus][g]) for g in both}
            | {f"{path}.de-en.{g}": b"another pair\n" for g in ("en", "de")}
        )
        for corpus, (name, path) in paths.items()
    }
    giga = {
        f"giga-fren.release2.fixed.{g}.gz": gzip.compress(text(corpora["giga"][g]), mtime=0)
        for g in both
    }
    archives["training-giga-fren.tar"] = gzip.decompress(tgz(giga))
    return archives | {"test-full.tgz": full_test(test, "fr-en")}


def google() -> dict[str, bytes]:
    """wmt16_en_de.tar.gz: everything is segmented already (here: into words)."""
    sizes = {"train.tok.clean": 300, "newstest2013.tok": 20, "newstest2014.tok": 20}
    lines = {stem: [f"{stem} {i}" for i in range(size)] for stem, size in sizes.items()}
    both = ("en", "de")
    members = {f"./{stem}.bpe.32000.{g}": text(lines[stem]) for stem in lines for g in both}
    test = full_test(dict.fromkeys(both, lines["newstest2014.tok"]))
    return {"wmt16_en_de.tar.gz": tgz(members), "test-full.tgz": test}


TED_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")


def small_iwslt14(
    train: dict[str, list[str]],
    test: dict[str, list[str]],
    pair: str = "de-en",
    without: tuple[str, ...] = (),
) -> bytes:
    """An archive with this training text, and these sentences in each test set."""
    tedx = "TEDX.dev2014" if "it" in pair else "TEDX.dev2012"
    sets = [tedx if "TEDX" in chosen else chosen for chosen in TED_SETS if chosen not in without]
    members = {
        f"{pair}/train.tags.{pair}.{lang}": ted_tags(sentences) for lang, sentences in train.items()
    }
    for chosen in sets:
        members |= {
            f"{pair}/IWSLT14.{chosen}.{pair}.{lang}.xml": ted_xml(sentences, lang)
            for lang, sentences in test.items()
        }
    return tgz(members)


# Numbered, so that every line tells where it came from; one pair in twenty is too unequal.
ENGLISH = [f"Sentence {i} is well-known." for i in range(1, 101)]
GERMAN = [f"Satz {i} kennt man." if i % 20 else f"Satz {i}." for i in range(1, 101)]
TRAIN = {"de": GERMAN, "en": ENGLISH}
TEST = {
    "de": ["Das ist Bär\u2019s E-Mail &amp; mehr."],
    "en": ["That\u2019s Bear's e-mail &amp; more."],
}


def filled(folder: Path, archives: Mapping[str, bytes]) -> Path:
    """The folder, with archives in it."""
    folder.mkdir(exist_ok=True)
    for name, content in archives.items():
        (folder / name).write_bytes(content)
    return folder


def without_hashes(corpus: Corpus) -> Corpus:
    """The corpus, of other text in archives of the published names and layout."""
    archives = tuple(replace(archive, known_hash=None) for archive in corpus.archives)
    return replace(corpus, archives=archives)


def text_of(corpus: Corpus, out: Path, source: Path) -> Path:
    """OUT-text, in this process."""
    return make_text(corpus, out, find_archives(corpus, out, source))


def data_of(corpus: Corpus, out: Path, source: Path, jobs: int = 1) -> Path:
    """OUT, in this process."""
    return make(corpus, out, source, jobs)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
