"""Archives in the layout of the published corpora, made from other text."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from data_prep.corpus import Corpus, find_archives, make, make_text


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


def read(folder: Path, stem: str, lang: str, start: int, size: int) -> list[str]:
    with gzip.open(folder / f"{stem}.{lang}.gz", "rt", encoding="utf-8", newline="\n") as stream:
        lines = stream.read().split("\n")
    return lines[start : start + size]


class Sentences:
    """Consecutive pairs of a shared corpus."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem, self._at = folder, stem, 0

    def take(self, size: int) -> dict[str, list[str]]:
        """The next `size` pairs, by language."""
        start = self._at
        self._at += size
        return {lang: read(self._folder, self._stem, lang, start, size) for lang in ("en", "de")}


def wmt14(shared: Path, size: int = 300) -> dict[str, bytes]:
    """The five archives of WMT14 English-German, by name: `size` pairs of each corpus."""
    captions = Sentences(shared / "multi30k", "train")
    news = Sentences(shared / "newstest", "newstest2013")
    corpora = {name: captions.take(size) for name in ("europarl", "crawl", "news")}
    valid, test = news.take(20), captions.take(20)
    both = ("en", "de")
    other = {"training/europarl-v7.fr-en.fr": b"autre\n"}
    return {
        "training-parallel-europarl-v7.tgz": tgz(
            other | {f"training/europarl-v7.de-en.{g}": text(corpora["europarl"][g]) for g in both}
        ),
        "training-parallel-commoncrawl.tgz": tgz(
            {f"commoncrawl.de-en.{g}": text(corpora["crawl"][g]) for g in both}
            | {"commoncrawl.de-en.annotation": b"x\n"}
        ),
        "training-parallel-nc-v9.tgz": tgz(
            {f"training/news-commentary-v9.de-en.{g}": text(corpora["news"][g]) for g in both}
        ),
        "dev.tgz": tgz({f"dev/newstest2013.{g}": text(valid[g]) for g in both}),
        "test-full.tgz": full_test(test),
    }


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


def google(shared: Path, size: int = 300) -> dict[str, bytes]:
    """wmt16_en_de.tar.gz: everything is segmented already (here: into words)."""
    captions = Sentences(shared / "multi30k", "train")
    sets = {
        "train.tok.clean.bpe.32000": captions.take(size),
        "newstest2013.tok.bpe.32000": captions.take(20),
        "newstest2014.tok.bpe.32000": (test := captions.take(20)),
    }
    members = {f"./{stem}.{g}": text(pair[g]) for stem, pair in sets.items() for g in pair}
    return {"wmt16_en_de.tar.gz": tgz(members), "test-full.tgz": full_test(test)}


TED_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")


def iwslt14(shared: Path, size: int = 600) -> dict[str, bytes]:
    """The archive of IWSLT14's German-English, by its name."""
    captions = Sentences(shared / "multi30k", "train")
    members = {
        f"de-en/train.tags.de-en.{lang}": ted_tags(text)
        for lang, text in captions.take(size).items()
    }
    for chosen in (*TED_SETS, "TED.tst2013"):
        members |= {
            f"de-en/IWSLT14.{chosen}.de-en.{lang}.xml": ted_xml(text, lang)
            for lang, text in captions.take(6).items()
        }
    return {"de-en.tgz": tgz(members)}


def small_iwslt14(
    train: dict[str, list[str]],
    test: dict[str, str],
    pair: str = "de-en",
    without: tuple[str, ...] = (),
) -> bytes:
    """An archive with this training text, and one sentence, the same, in each test set."""
    tedx = "TEDX.dev2014" if "it" in pair else "TEDX.dev2012"
    sets = [tedx if "TEDX" in chosen else chosen for chosen in TED_SETS if chosen not in without]
    members = {
        f"{pair}/train.tags.{pair}.{lang}": ted_tags(sentences) for lang, sentences in train.items()
    }
    for chosen in sets:
        members |= {
            f"{pair}/IWSLT14.{chosen}.{pair}.{lang}.xml": ted_xml([sentence], lang)
            for lang, sentence in test.items()
        }
    return tgz(members)


# Numbered, so that every line tells where it came from; one pair in twenty is too unequal.
ENGLISH = [f"Sentence {i} is well-known." for i in range(1, 101)]
GERMAN = [f"Satz {i} kennt man." if i % 20 else f"Satz {i}." for i in range(1, 101)]
TRAIN = {"de": GERMAN, "en": ENGLISH}
TEST = {
    "de": "Das ist Bär\u2019s E-Mail &amp; mehr.",
    "en": "That\u2019s Bear's e-mail &amp; more.",
}


def filled(folder: Path, archives: Mapping[str, bytes]) -> Path:
    """The folder, with archives in it."""
    folder.mkdir(exist_ok=True)
    for name, content in archives.items():
        (folder / name).write_bytes(content)
    return folder


def text_of(corpus: Corpus, out: Path, source: Path) -> Path:
    """OUT-text, in this process."""
    return make_text(corpus, out, find_archives(corpus, out, source))


def data_of(corpus: Corpus, out: Path, source: Path, jobs: int = 1) -> Path:
    """OUT, in this process."""
    return make(corpus, out, source, jobs)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
