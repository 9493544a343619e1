"""Corpora that come as plain text in gzipped files, and are segmented with sentencepiece."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from collab_common.folder import Json
from data_prep.archives import Member
from data_prep.corpus_recipe import Archive, Corpus
from data_prep.parallel_text import check_published, rewrite
from data_prep.work import SPLITS, Work, segment

FORM = {"subwords": "sentencepiece", "moses": False, "lowercased": False, "hyphens": None}
SplitText = Callable[[Work], Json]


def gzipped(
    stems: Mapping[str, str],
    languages: tuple[str, str],
    url: str,
    check: Callable[..., None] | None = None,
) -> tuple[Archive, ...]:
    """The files STEM.LANG.gz of the splits; `check(file, name=NAME)` gets the name without .gz."""
    names = [f"{stem}.{lang}" for stem in stems.values() for lang in languages]
    return tuple(
        Archive(
            f"{name}.gz",
            f"{url}/{name}.gz" if url else "",
            (Member(name, (name,)),),
            check=partial(check, name=name) if check else None,
        )
        for name in names
    )


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
    steps: Json = {}
    for split in SPLITS:
        pair = work.originals(stems[split])
        steps[split] = check_published(pair)
        rewrite(pair, work.scratches(split))
    return steps


def _text(split_text: SplitText, vocabulary: int, work: Work) -> Json:
    steps: Json = {"splits": split_text(work)}
    rewrite(work.scratches("test"), work.results("raw/test"))
    return steps | {"subwords": segment(work, vocabulary)}
