"""The command line of a corpus: one of its data stages, `python -m data_prep.CORPUS STAGE`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from collab_common.command import positive, run
from data_prep.apply_bpe import BpeOptions
from data_prep.corpus_recipe import (
    STAGES,
    Corpus,
    arguments_of,
    binarise_text,
    extract_archives,
    fetch_archives,
    make_text,
    with_bpe_options,
    with_own_archives,
)
from data_prep.options import add_bpe_options


def command(
    prog: str,
    description: str,
    variants: Mapping[str, str],
    pairs: Sequence[str],
    corpus_for: Callable[[str, tuple[str, str]], Corpus],
    argv: Sequence[str] | None = None,
) -> int:
    """The command line of a corpus. `variants` maps names to help; the first is the default."""
    parser = _parser(prog, description, variants, pairs)
    args = parser.parse_args(argv)
    source, _, target = args.pair.partition("-")

    def action() -> None:
        corpus = corpus_for(args.variant, (source, target))
        if args.own_archives:
            corpus = with_own_archives(corpus)
        corpus = with_bpe_options(
            corpus, BpeOptions(args.vocabulary_threshold, tuple(args.glossaries))
        )
        if args.dry_run:
            print("\n".join(_would_do(corpus, args)))
        elif args.stage == "fetch":
            fetch_archives(corpus, args.out, mirror=args.mirror, folder=args.from_folder)
        elif args.stage == "extract":
            extract_archives(corpus, args.out, force=args.force)
        elif args.stage == "text":
            make_text(corpus, args.out, jobs=args.jobs, force=args.force)
        else:
            binarise_text(corpus, args.out, jobs=args.jobs, force=args.force)

    return run(prog, action)


def _would_do(corpus: Corpus, args: argparse.Namespace) -> Iterator[str]:
    """What a stage does, in lines for a reader."""
    if args.stage == "fetch":
        for archive in corpus.archives:
            where = args.from_folder and args.from_folder / archive.name
            yield f"{where or archive.address(args.mirror)} ({archive.known})"
    elif args.stage == "extract":
        for archive in corpus.archives:
            for member in archive.members:
                yield f"{archive.name}: {' or '.join(member.paths)} -> {member.name}"
    elif args.stage == "text":
        yield json.dumps({**corpus.options, "form": corpus.form}, ensure_ascii=False)
    else:
        yield " ".join(["fairseq-preprocess", *arguments_of(corpus, args.jobs)])


def _parser(
    prog: str, description: str, variants: Mapping[str, str], pairs: Sequence[str]
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="of the recipe")
    first = next(iter(variants))
    described = "; ".join(f"{name}: {text}" for name, text in variants.items())
    described += f" (default: {first})"
    parser.add_argument("--variant", choices=tuple(variants), default=first, help=described)
    parser.add_argument(
        "--pair", choices=tuple(pairs), default=pairs[0], help=f"languages (default: {pairs[0]})"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--mirror", metavar="URL", help="fetch: URL/NAME instead of the originals")
    where.add_argument(
        "--from",
        dest="from_folder",
        type=Path,
        metavar="DIR",
        help="fetch: the archives are in this folder, under their own names",
    )
    parser.add_argument(
        "--own-archives",
        action="store_true",
        help="other text in archives of the same layout: compare with no published hash "
        "(in every stage; what is fetched is locked all the same)",
    )
    add_bpe_options(parser)
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="processes")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--force", action="store_true", help="do it again, whatever is there")
    return parser
