"""A published corpus, from its archives to a folder for fairseq: one command each.

    fairseq-collab data wmt14 --out data/wmt14

    data/wmt14-archives    as published, with the published hashes where there are any
    data/wmt14-text        train, valid and test in tokens; raw/ for scoring
    data/wmt14             segmented and binarised (data_prep.prepare)

Each folder gets its name when it is complete; its manifest names its inputs.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collab_common.command import positive, run
from collab_common.files import sha256
from collab_common.folder import Json, build_folder
from collab_common.provenance import versions
from data_prep.archives import Archive, check_hash, extract, fetch
from data_prep.parallel_text import Languages, Pair, pair_in
from data_prep.prepare import SUBWORD_NMT, PrepareConfig, Published, prepare

SPLITS = {"train": "train", "valid": "valid", "test": "test"}


@dataclass(frozen=True)
class Work:
    """Where a corpus makes its text.

    Args:
        original: folder with the members of all archives
        folder: to be filled with train, valid and test, and raw/test
        scratch: for everything on the way; removed afterwards
    """

    original: Path
    folder: Path
    scratch: Path
    languages: Languages

    def originals(self, stem: str, suffix: str = "") -> Pair:
        return pair_in(self.original, stem, self.languages, suffix)

    def scratches(self, stem: str) -> Pair:
        return pair_in(self.scratch, stem, self.languages)

    def results(self, stem: str) -> Pair:
        return pair_in(self.folder, stem, self.languages)


@dataclass(frozen=True)
class Corpus:
    """One variant of a corpus in one direction.

    Args:
        make_text: fills work.folder; returns counts of every step
        options: everything that `make_text` depends on, for the manifest
        vocab_size: merges of subword-nmt
        published: what `prepare` does differently; `about` is filled in here
    """

    name: str
    variant: str
    languages: Languages
    archives: tuple[Archive, ...]
    make_text: Callable[[Work], Json]
    published: Published
    options: Json = field(default_factory=dict)
    vocab_size: int = 0
    note: str = ""

    @property
    def about(self) -> Json:
        named = {"corpus": self.name, "variant": self.variant, "languages": list(self.languages)}
        return {**named, **({"note": self.note} if self.note else {})}


def with_own_archives(corpus: Corpus) -> Corpus:
    """The corpus, of other text in archives of the published names and layout."""
    archives = tuple(replace(one, known_hash=None) for one in corpus.archives)
    return replace(corpus, archives=archives, note="own archives, not the published ones")


def sibling(out: Path, what: str) -> Path:
    """The folder OUT-WHAT."""
    out = out.resolve()
    return out.with_name(f"{out.name}-{what}")


def find_archives(corpus: Corpus, out: Path, folder: Path | None = None) -> dict[str, Path]:
    """The archives in `folder`, or downloaded to OUT-archives, by name. Raises UserError."""
    found = {}
    for archive in corpus.archives:
        path = found[archive.name] = (folder or sibling(out, "archives")) / archive.name
        if folder is None:
            fetch(archive.url, path, archive.known_hash)
        else:
            check_hash(path, archive.known_hash)
    return found


def make_text(
    corpus: Corpus, out: Path, archives: Mapping[str, Path], *, force: bool = False
) -> Path:
    """Makes OUT-text from the archives; returns it."""

    def build(temporary: Path) -> Json:
        scratch = temporary / ".scratch"
        (scratch / "original").mkdir(parents=True)
        (temporary / "raw").mkdir()
        for archive in corpus.archives:
            print(f"extracting {archive.name} ...", flush=True)
            extract(archives[archive.name], archive.members, scratch / "original")
        work = Work(scratch / "original", temporary, scratch, corpus.languages)
        steps = corpus.make_text(work)
        shutil.rmtree(scratch)
        return {"steps": steps, "versions": versions("sacremoses", "fairseq-collab")}

    inputs = {name: {"sha256": sha256(path)} for name, path in archives.items()}
    identity: Json = {"options": corpus.about | corpus.options, "inputs": inputs}
    build_folder(sibling(out, "text"), identity, build, force=force)
    return sibling(out, "text")


def make(
    corpus: Corpus, out: Path, folder: Path | None = None, jobs: int = 1, force: bool = False
) -> Path:
    """Makes OUT-archives, OUT-text and OUT; returns OUT. Raises UserError."""
    config = PrepareConfig(
        text=make_text(corpus, out, find_archives(corpus, out, folder), force=force),
        out=out,
        languages=corpus.languages,
        vocab_size=corpus.vocab_size,
        splits=SPLITS,
        subwords=SUBWORD_NMT,
        jobs=jobs,
        published=replace(corpus.published, about=corpus.about),
        force=force,
    )
    return prepare(config)


def command(
    prog: str,
    description: str,
    variants: Mapping[str, str],
    pairs: Sequence[str],
    corpus_for: Callable[[str, Languages], Corpus],
    argv: Sequence[str] | None = None,
) -> int:
    """The command line of a corpus. `variants` maps names to help; the first is the default."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    first = next(iter(variants))
    described = "; ".join(f"{name}: {text}" for name, text in variants.items())
    parser.add_argument(
        "--variant", choices=tuple(variants), default=first, help=f"{described} (default: {first})"
    )
    parser.add_argument(
        "--pair", choices=tuple(pairs), default=pairs[0], help=f"languages (default: {pairs[0]})"
    )
    parser.add_argument(
        "--from", dest="folder", type=Path, metavar="DIR",
        help="folder of the archives (default: download them to OUT-archives)",
    )  # fmt: skip
    parser.add_argument(
        "--own-archives", action="store_true",
        help="the archives hold other text in the published layout: no published hash applies",
    )  # fmt: skip
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="processes")
    parser.add_argument("--force", action="store_true", help="rebuild --out and its text")
    args = parser.parse_args(argv)
    source, _, target = args.pair.partition("-")

    def action() -> None:
        corpus = corpus_for(args.variant, (source, target))
        if args.own_archives:
            corpus = with_own_archives(corpus)
        make(corpus, args.out, args.folder, args.jobs, args.force)

    return run(prog, action)
