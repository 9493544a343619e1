"""The data stages that every published corpus goes through, one command each:

    python -m data_prep.wmt14 fetch    --out OUT    OUT/archives  as published, hashes locked
    python -m data_prep.wmt14 extract  --out OUT    OUT/original  the files that are needed
    python -m data_prep.wmt14 text     --out OUT    OUT/text      cleaned, tokenised, segmented
    python -m data_prep.wmt14 binarise --out OUT    OUT/data      for fairseq; raw/ for scoring

A corpus says what its archives are and how its text is made (`Corpus`); all else is here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from collab_common.errors import UserError
from collab_common.files import GZIP, locked, read_json, sha256
from collab_common.folder import Json, read_finished
from data_prep.apply_bpe import CODES_ALONE, BpeOptions
from data_prep.archives import Member, extract
from data_prep.binarise import check_binarised, preprocess_arguments
from data_prep.child import run_module
from data_prep.fetch import LOCK_FILE, Published, fetch, take_over
from data_prep.parallel_text import check_for_fairseq
from data_prep.stages import build_stage, inputs_from
from data_prep.work import SPLITS, Work

STAGES = ("fetch", "extract", "text", "binarise")


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
        bpe: how `with_bpe` segments its text; None for a text that comes segmented, or otherwise is
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
        scratch, bpe = folder / ".scratch", corpus.bpe or CODES_ALONE
        work = Work(out / "original", folder, scratch, corpus.languages, jobs, bpe)
        work.scratch.mkdir()
        (folder / "raw").mkdir()
        steps = corpus.make_text(work)
        shutil.rmtree(work.scratch)
        checked = {split: check_for_fairseq(work.results(split)) for split in SPLITS}
        return {"form": corpus.form, "steps": steps, "checked": checked, "versions": _versions()}

    options = {**corpus.identity, **corpus.options}
    inputs = inputs_from(out, ["original"])
    return build_stage(out, "text", inputs=inputs, options=options, build=build, force=force)


def binarise_text(corpus: Corpus, out: Path, *, jobs: int, force: bool = False) -> Path:
    """Makes OUT/data with the unmodified fairseq-preprocess, and compares the counts."""
    text = read_finished(out / "text")

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
        return {"form": text["form"], "sentences": counts, "versions": _versions()}

    options = {**corpus.identity, "preprocess": preprocess_options(corpus)}
    inputs = inputs_from(out, ["text"])
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


def _versions() -> dict[str, str]:
    names = ("fairseq", "sacremoses", "sentencepiece", "subword-nmt", "fairseq-collab")
    return {name: version(name) for name in names}
