"""A corpus: where its text comes from, and how the text becomes a data folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collab_common.folder import Json
from data_prep import subwords
from data_prep.archives import Archive
from data_prep.parallel_text import Languages, Splits

SENTENCEPIECE, SUBWORD_NMT = "sentencepiece", "subword_nmt"


@dataclass(frozen=True)
class Corpus:
    """A text in one direction.

    Text from archives is read unchanged; faults of other text are dropped or rejected.

    Args:
        vocab_size: number of sentencepiece's pieces, or of subword-nmt's merges
        subwords: SENTENCEPIECE, or SUBWORD_NMT for text in tokens between blanks
        splits: fairseq's name of each split (train, valid, test, test1, test2, ...) and the stem of
            its text; None for the usual names
        origin: where the text comes from, for the manifest (a name, a seed, ...)
        like: data folder whose subwords and dictionaries are used, for models that were trained on
            it; the text may then have only some of the sets
        archives: published archives of the text
        make_text: ``make_text(folder, languages)`` makes train, valid, test and raw/test from the
            members of the archives, which are in folder/original; folder/scratch is removed
            afterwards
        text_options: everything that ``make_text`` depends on, for the manifest
        about: corpus, variant, languages and a note, for the manifest
        form: form of the text, for scoring: ``moses`` (tokenised), ``lowercased``, ``hyphens`` (the
            token that a split hyphen became, or None), ``subwords``
        segmented: whether the text consists of subwords already
        joined: whether both languages have one dictionary
        symbols: the most symbols of a dictionary; None for all
        cleaned: limits of lengths in subwords (see ``is_kept``), by set
        documents: numbers of sentences that are joined to one line (see ``documents.py``); none if
            sentences are not joined
    """

    languages: Languages
    vocab_size: int
    subwords: str = SENTENCEPIECE
    splits: Splits | None = None
    origin: Json = field(default_factory=dict)
    like: Path | None = None
    archives: tuple[Archive, ...] = ()
    make_text: Callable[[Path, Languages], None] = lambda *_: None
    text_options: Json = field(default_factory=dict)
    about: Json = field(default_factory=dict)
    form: Json | None = None
    segmented: bool = False
    joined: bool = True
    symbols: int | None = None
    cleaned: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    documents: tuple[int, ...] = ()

    @property
    def model(self) -> str:
        """Return the name of the file with the subwords in a data folder."""
        return subwords.CODES if self.subwords == SUBWORD_NMT else subwords.MODEL

    @property
    def reused(self) -> list[Path]:
        """List the files of ``like``: subwords, and the dictionaries of source and target."""
        names = [self.model, *(f"dict.{lang}.txt" for lang in self.languages)]
        return [self.like.resolve() / name for name in names] if self.like else []

    @property
    def dictionaries(self) -> list[str]:
        """Return the options of fairseq-preprocess that decide about the dictionaries."""
        if self.like:
            _, source, target = map(str, self.reused)
            return ["--srcdict", source, "--tgtdict", target]
        joined = ["--joined-dictionary"] if self.joined else []
        return joined + [
            f"--nwords{side}={self.symbols}" for side in ("src", "tgt") if self.symbols
        ]

    @property
    def options(self) -> Json:
        """Return everything that decides about the data folder, except for the text."""
        published = {"preprocess": self.dictionaries, "cleaned": self.cleaned} | self.about
        return {
            "source_lang": self.languages[0],
            "target_lang": self.languages[1],
            "vocab_size": None if self.like else self.vocab_size,
            "subwords": self.subwords,
            **(published if self.archives else {}),
            **({"documents": [*self.documents]} if self.documents else {}),
        }
