"""A published corpus, from its archives to a folder for fairseq: one command each.

    fairseq-collab data wmt14 --out data/wmt14

    data/wmt14-archives    as published, with the published hashes where there are any
    data/wmt14-text        train, valid and test in tokens; raw/ for scoring
    data/wmt14             segmented and binarised (data_prep.prepare)

Each folder gets its name when it is complete; its manifest names its inputs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from collab_common.command import Parser, run
from collab_common.files import sha256
from collab_common.folder import Json, build_folder
from collab_common.moses import pipeline
from collab_common.provenance import versions
from data_prep.archives import check_hash, extract, fetch
from data_prep.corpus import Corpus
from data_prep.parallel_text import Languages, Pair, check_equal, lines_of, sibling, write_lines
from data_prep.prepare import add_output_options, prepare


def tokenise_pair(sources: Pair, targets: Pair, languages: Languages, **steps: bool) -> None:
    """Write the tokens of both sides, joined by blanks.

    Args:
        steps: options of ``moses.pipeline``

    Raises:
        UserError: a line is not UTF-8 (the error names file and line), or the sides have unequal
            numbers of lines.
    """
    counts = [
        write_lines(target, map(pipeline(lang, **steps), lines_of(source)))
        for source, target, lang in zip(sources, targets, languages, strict=True)
    ]
    check_equal(sources, counts)


def find_archives(corpus: Corpus, out: Path, folder: Path | None = None) -> dict[str, Path]:
    """Return the archives by name: those in ``folder``, or downloaded to OUT-archives."""
    paths = {}
    for archive in corpus.archives:
        path = paths[archive.name] = (folder or sibling(out, "archives")) / archive.name
        if folder is None:
            fetch(archive.url, path, archive.known_hash)
        else:
            check_hash(path, archive.known_hash)
    return paths


def make_text(
    corpus: Corpus, out: Path, archives: Mapping[str, Path], *, force: bool = False
) -> Path:
    """Make OUT-text from the archives, and return it."""

    def build(folder: Path) -> Json:
        for name in ("original", "scratch", "raw"):
            (folder / name).mkdir()
        for archive in corpus.archives:
            print(f"extracting {archive.name} ...", flush=True)
            extract(archives[archive.name], archive, folder / "original")
        corpus.make_text(folder, corpus.languages)
        for name in ("original", "scratch"):
            shutil.rmtree(folder / name)
        return {"versions": versions("sacremoses", "fairseq-collab")}

    inputs = {name: {"sha256": sha256(path)} for name, path in archives.items()}
    identity: Json = {"options": corpus.about | corpus.text_options, "inputs": inputs}
    build_folder(sibling(out, "text"), identity, build, force=force)
    return sibling(out, "text")


def make(
    corpus: Corpus, out: Path, folder: Path | None = None, jobs: int = 1, force: bool = False
) -> Path:
    """Make OUT-archives, OUT-text and OUT, and return OUT."""
    text = make_text(corpus, out, find_archives(corpus, out, folder), force=force)
    return prepare(corpus, text, out, jobs=jobs, force=force)


def command(
    prog: str,
    description: str,
    variants: Mapping[str, str],
    pairs: Sequence[str],
    corpus_for: Callable[[str, Languages], Corpus],
    argv: Sequence[str] | None = None,
) -> int:
    """Run the command of a corpus.

    Args:
        variants: help texts by the names of variants; the first one is the default
        pairs: pairs of languages; the first one is the default
    """
    parser = Parser(prog=prog, description=description)
    first = next(iter(variants))
    described = "; ".join(f"{name}: {text}" for name, text in variants.items())
    parser.add_argument(
        "--variant", choices=tuple(variants), default=first, help=f"{described} (default: {first})"
    )
    parser.add_argument(
        "--pair",
        choices=tuple(pairs),
        default=pairs[0],
        help=f"source and target language (default: {pairs[0]})",
    )
    parser.add_argument(
        "--from", dest="folder", type=Path, metavar="DIR",
        help="folder with the archives (default: download them to OUT-archives)",
    )  # fmt: skip
    add_output_options(parser)
    args = parser.parse_args(argv)
    source, _, target = args.pair.partition("-")

    def action() -> None:
        corpus = corpus_for(args.variant, (source, target))
        make(corpus, args.out, args.folder, args.jobs, args.force)

    return run(prog, action)
