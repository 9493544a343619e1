"""The data stages that every published corpus goes through, one command each:

    python -m data_prep.wmt14 fetch    --out OUT    OUT/archives  as published, hashes locked
    python -m data_prep.wmt14 extract  --out OUT    OUT/original  the files that are needed
    python -m data_prep.wmt14 text     --out OUT    OUT/text      cleaned, tokenised, segmented
    python -m data_prep.wmt14 binarise --out OUT    OUT/data      for fairseq; raw/ for scoring

A corpus says what its archives are and how its text is made (`Corpus`); all else is here, `command`
last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collab_common.command import positive, run
from collab_common.errors import UserError
from collab_common.files import GZIP, locked, read_json, sha256
from collab_common.folder import MANIFEST, Json
from collab_common.provenance import versions
from data_prep.apply_bpe import CODES_ALONE, BpeOptions
from data_prep.archives import Member, extract
from data_prep.binarise import check_binarised, preprocess_arguments
from data_prep.child import run_module
from data_prep.fetch import LOCK_FILE, Published, fetch, take_over
from data_prep.options import add_bpe_options, add_from
from data_prep.parallel_text import check_for_fairseq
from data_prep.stages import build_stage, inputs_from
from data_prep.work import SPLITS, Work

STAGES = ("fetch", "extract", "text", "binarise")
_PACKAGES = ("fairseq", "sacremoses", "sentencepiece", "subword-nmt", "fairseq-collab")


@dataclass(frozen=True)
class Archive:
    """A published file: what is needed of it, and what its publisher says of it."""

    name: str
    url: str
    members: tuple[Member, ...]
    published: Published = field(default_factory=Published)
    check: Callable[[Path], None] | None = None

    def accept(self, path: Path) -> None:
        """Raises UserError unless the file is what was published."""
        self.published.check(path)
        if self.check is not None:
            self.check(path)

    def address(self, mirror: str | None) -> str:
        if mirror:
            return f"{mirror.rstrip('/')}/{self.name}"
        if not self.url:
            todo = "give --from DIR where it is, or --mirror URL"
            raise UserError("no public address of this file is known", self.name, todo)
        return self.url

    @property
    def known(self) -> str:
        """What its content is compared with."""
        size, sha256, md5 = self.published.size, self.published.sha256, self.published.md5
        known = [f"{size:,} bytes"] if size else []
        known += [f"SHA-256 {sha256}"] if sha256 else []
        known += [f"MD5 {md5}"] if md5 else []
        known += ["text checked"] if self.check else []
        return ", ".join(known) or "no hash published: locked at the first download"


@dataclass(frozen=True)
class Corpus:
    """One variant of a corpus in one direction.

    Args:
        options: all that `make_text` depends on, for the manifest
        make_text: fills work.folder; returns counts of every step
        form: what the text is like, for scoring: ``subwords``, ``moses`` (whether it is tokenised),
            ``lowercased``, ``hyphens`` (the token that a split hyphen became, or None)
        joined: one dictionary for both languages
        vocabulary: most symbols of a dictionary; None for all
        bpe: how subword-nmt segments its text; None if it does not
    """

    name: str
    variant: str
    languages: tuple[str, str]
    archives: tuple[Archive, ...]
    options: Json
    make_text: Callable[[Work], Json]
    form: Json
    joined: bool = True
    vocabulary: int | None = None
    bpe: BpeOptions | None = None
    note: str = ""

    @property
    def identity(self) -> Json:
        named = {"corpus": self.name, "variant": self.variant, "languages": list(self.languages)}
        return {**named, **({"note": self.note} if self.note else {})}


def with_own_archives(corpus: Corpus) -> Corpus:
    """The same corpus, of other text in archives of the same names and layout."""
    archives = tuple(replace(one, published=Published(), check=None) for one in corpus.archives)
    return replace(corpus, archives=archives, note="own archives, not the published ones")


def with_bpe_options(corpus: Corpus, chosen: BpeOptions) -> Corpus:
    """The same corpus, segmented so; UserError if subword-nmt's codes are not applied to it."""
    if chosen == CODES_ALONE:
        return corpus
    if corpus.bpe is None:
        what = f"--{next(iter(chosen.as_json())).replace('_', '-')}: for subword-nmt's codes only"
        raise UserError(what, f"{corpus.name}, variant {corpus.variant}", "leave it out")
    told = chosen.as_json()
    options, form = corpus.options | told, corpus.form | told
    return replace(corpus, bpe=chosen, options=options, form=form)


def fetch_archives(
    corpus: Corpus, out: Path, *, mirror: str | None = None, folder: Path | None = None
) -> None:
    """Puts the archives into OUT/archives: from `folder`, from MIRROR/NAME, or from their URLs."""
    target = out / "archives"
    target.mkdir(parents=True, exist_ok=True)
    with locked(out / ".lock"):
        for archive in corpus.archives:
            path = target / archive.name
            if folder is not None:
                take_over(folder / archive.name, path, check=archive.accept)
            else:
                magic = GZIP if archive.name.endswith("gz") else b""
                fetch(archive.address(mirror), path, magic=magic, check=archive.accept)
            print(f"{archive.name}: ready", flush=True)


def extract_archives(corpus: Corpus, out: Path, *, force: bool = False) -> Path:
    """Makes OUT/original with the members of all archives."""
    folder = out / "archives"
    known: Json = read_json(folder / LOCK_FILE) if (folder / LOCK_FILE).exists() else {}
    for archive in corpus.archives:
        if archive.name not in known or not (folder / archive.name).exists():
            raise UserError("is not there yet", folder / archive.name, "do the stage fetch first")

    def build(temporary: Path) -> Json:
        found = {}
        for archive in corpus.archives:
            print(f"extracting {archive.name} ...", flush=True)
            path = folder / archive.name
            if sha256(path) != known[archive.name]["sha256"]:
                raise UserError("is no longer what was fetched", path, "remove it, fetch again")
            found[archive.name] = extract(path, archive.members, temporary)
        return {"members": found}

    inputs = {
        f"archives/{archive.name}": {"sha256": known[archive.name]["sha256"]}
        for archive in corpus.archives
    }
    members = [member.name for archive in corpus.archives for member in archive.members]
    options = {**corpus.identity, "members": members}
    return build_stage(out, "original", inputs=inputs, options=options, build=build, force=force)


def make_text(corpus: Corpus, out: Path, *, jobs: int, force: bool = False) -> Path:
    """Makes OUT/text: train, valid and test, ready to be binarised, and raw/."""

    def build(folder: Path) -> Json:
        scratch = folder / ".scratch"
        work = Work(out / "original", folder, scratch, corpus.languages, jobs, corpus.bpe)
        work.scratch.mkdir()
        (folder / "raw").mkdir()
        steps = corpus.make_text(work)
        shutil.rmtree(work.scratch)
        checked = {split: check_for_fairseq(work.results(split)) for split in SPLITS}
        told = {"form": corpus.form, "steps": steps, "checked": checked}
        return {**told, "versions": versions(*_PACKAGES)}

    options = {**corpus.identity, **corpus.options}
    inputs = inputs_from(out, ["original"])
    return build_stage(out, "text", inputs=inputs, options=options, build=build, force=force)


def binarise_text(corpus: Corpus, out: Path, *, jobs: int, force: bool = False) -> Path:
    """Makes OUT/data with the unmodified fairseq-preprocess, and compares the counts."""
    inputs = inputs_from(out, ["text"])  # it is finished, then
    text = read_json(out / "text" / MANIFEST)

    def build(folder: Path) -> Json:
        # OUT/data may be a link to elsewhere
        arguments = arguments_of(corpus, jobs, os.path.relpath((out / "text").resolve(), folder))
        print(f"$ fairseq-preprocess {' '.join(arguments)}", flush=True)
        run_module("fairseq_cli.preprocess", arguments, folder)
        (folder / "preprocess.log").unlink(missing_ok=True)  # it tells the number of processes
        counts = {
            split: check_binarised(folder, split, corpus.languages, text["checked"][split]["kept"])
            for split in SPLITS
        }
        shutil.copytree(out / "text" / "raw", folder / "raw")
        return {"form": text["form"], "sentences": counts, "versions": versions(*_PACKAGES)}

    options = {**corpus.identity, "preprocess": preprocess_options(corpus)}
    return build_stage(out, "data", inputs=inputs, options=options, build=build, force=force)


def arguments_of(corpus: Corpus, jobs: int, text: str = "../text") -> list[str]:
    """What fairseq-preprocess is given, in the folder that it is to fill: OUT/data."""
    prefixes = {split: f"{text}/{split}" for split in SPLITS}
    return preprocess_arguments(prefixes, corpus.languages, preprocess_options(corpus), jobs)


def preprocess_options(corpus: Corpus) -> list[str]:
    """The options of fairseq-preprocess that decide on the dictionaries."""
    joined = ["--joined-dictionary"] if corpus.joined else []
    if corpus.vocabulary is None:
        return joined
    return [*joined, f"--nwordssrc={corpus.vocabulary}", f"--nwordstgt={corpus.vocabulary}"]


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
        corpus = with_bpe_options(corpus, BpeOptions.from_json(vars(args)))
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
    add_from(where, "fetch: the archives are in this folder, under their own names")
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
