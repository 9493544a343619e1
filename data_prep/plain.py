"""Corpora that come as plain text in gzipped files, and are segmented with sentencepiece."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from collab_common.folder import Json
from data_prep import segment
from data_prep.archives import Member
from data_prep.corpus_recipe import SPLITS, Archive, Corpus, Work
from data_prep.parallel_text import Pair, check_published, lines_of, write_lines

FORM = {"subwords": "sentencepiece", "moses": False, "lowercased": False, "hyphens": None}
SplitText = Callable[[Work], Json]


def gzipped(
    stems: Mapping[str, str],
    languages: tuple[str, str],
    url: str,
    check: Callable[[Path, str], None] | None = None,
) -> tuple[Archive, ...]:
    """The files STEM.LANG.gz of the splits; `check` is given a file and its name without .gz."""
    names = [f"{stem}.{lang}" for stem in stems.values() for lang in languages]
    return tuple(
        Archive(
            f"{name}.gz",
            f"{url}/{name}.gz" if url else "",
            (Member(name, (name,)),),
            check=_named(check, name) if check else None,
        )
        for name in names
    )


def _named(check: Callable[[Path, str], None], name: str) -> Callable[[Path], None]:
    def check_file(path: Path) -> None:
        check(path, name)

    return check_file


def corpus(
    name: str,
    variant: str,
    languages: tuple[str, str],
    archives: tuple[Archive, ...],
    vocabulary: int,
    split_text: SplitText,
    options: Json,
) -> Corpus:
    """A corpus whose `split_text` writes train, valid and test into work.scratch."""
    return Corpus(
        name=name,
        variant=variant,
        languages=languages,
        archives=archives,
        options={**options, "subwords": vocabulary},
        make_text=partial(_text, split_text, vocabulary),
        form=FORM,
    )


def copy_splits(stems: Mapping[str, str], work: Work) -> Json:
    """For corpora that are split already."""
    told: Json = {}
    for split in SPLITS:
        pair = work.originals(stems[split])
        told[split] = check_published(pair)
        _copy(pair, work.scratches(split))
    return told


def _text(split_text: SplitText, vocabulary: int, work: Work) -> Json:
    told: Json = {"splits": split_text(work)}
    _copy(work.scratches("test"), work.results("raw/test"))
    return told | {"subwords": segment.with_sentencepiece(work, vocabulary)}


def _copy(sources: Pair, targets: Pair) -> None:
    for source, target in zip(sources, targets, strict=True):
        write_lines(target, lines_of(source))
