"""From a folder of text to a folder that fairseq trains on: `fairseq-collab data prepare`.

    text, checked -> joint subwords learnt and applied -> fairseq-preprocess -> report

The folder gets its name when it is complete. It holds, next to fairseq's files,

    spm.model       the subword model; with subword-nmt: code
    raw/            references that BLEU is counted against, as plain text
    manifest.json   inputs, options, versions, report of every set, hash of every file
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from collab_common.command import positive, run, share
from collab_common.errors import UserError
from collab_common.files import sha256, sha256_of_text
from collab_common.folder import Json, build_folder
from collab_common.provenance import versions
from data_prep import subwords
from data_prep.check import ALLOWED_LOSS, SetReport, check_losses, check_sets, report_lines
from data_prep.clean_pairs import Limits, clean_pairs
from data_prep.parallel_text import Languages, Pair, Splits, find_files, pair_in

PROG = "fairseq-collab data prepare"
SENTENCEPIECE, SUBWORD_NMT = "sentencepiece", "subword_nmt"


@dataclass(frozen=True)
class Published:
    """How a published corpus differs from other text.

    Args:
        form: form of its text, for scoring: ``moses`` (tokenised), ``lowercased``, ``hyphens`` (the
            token that a split hyphen became, or None), ``subwords``
        segmented: the text consists of subwords already
        joined: one dictionary for both languages
        symbols: most symbols of a dictionary; None for all
        cleaned: limits of lengths in subwords, of each set from which pairs are dropped for them
        about: corpus, variant, languages, for the manifest
    """

    form: Json
    segmented: bool = False
    joined: bool = True
    symbols: int | None = None
    cleaned: Mapping[str, Limits] = field(default_factory=dict)
    about: Json = field(default_factory=dict)

    def preprocess_options(self) -> list[str]:
        """The options of fairseq-preprocess that decide on the dictionaries."""
        joined = ["--joined-dictionary"] if self.joined else []
        sizes = [f"--nwords{side}={self.symbols}" for side in ("src", "tgt") if self.symbols]
        return [*joined, *sizes]

    def options(self) -> Json:
        """For the manifest."""
        cleaned = {split: asdict(limits) for split, limits in self.cleaned.items()}
        return self.about | {"preprocess": self.preprocess_options(), "cleaned": cleaned}


@dataclass(frozen=True)
class PrepareConfig:
    """What to prepare.

    Args:
        text: folder with STEM.LANG (or STEM.LANG.gz) for each split and language
        out: the folder to make
        like: data folder whose subwords and dictionaries the new one gets, for the models trained
            on it; then any one set is enough
        vocab_size: pieces of sentencepiece, merges of subword-nmt
        splits: fairseq's name of each split (train, valid, test, test1, test2, ...) and its STEM;
            None for those found in the folder
        subwords: SENTENCEPIECE, or SUBWORD_NMT for text in tokens between blanks
        jobs: processes of fairseq-preprocess; they change no byte of the result
        allowed_loss: share of a set that faults may cost
        origin: where the text comes from, for the manifest (a name, a seed, ...)
        force: rebuild `out` if it was made from something else
    """

    text: Path
    out: Path
    languages: Languages
    vocab_size: int
    splits: Splits | None = None
    subwords: str = SENTENCEPIECE
    jobs: int = 1
    allowed_loss: float = ALLOWED_LOSS
    origin: Mapping[str, Any] = field(default_factory=dict)
    published: Published | None = None
    force: bool = False
    like: Path | None = None

    @property
    def model(self) -> str:
        """The file of the subwords in a data folder."""
        return subwords.CODES if self.subwords == SUBWORD_NMT else subwords.MODEL

    @property
    def reused(self) -> list[Path]:
        """The files of `like`: subwords, and the dictionaries of source and target."""
        names = [self.model, *(f"dict.{lang}.txt" for lang in self.languages)]
        return [self.like.resolve() / name for name in names] if self.like else []

    @property
    def options(self) -> Json:
        """Everything but the text that decides on the result."""
        return {
            "source_lang": self.languages[0],
            "target_lang": self.languages[1],
            "vocab_size": None if self.like else self.vocab_size,
            "subwords": self.subwords,
            **(self.published.options() if self.published else {}),
        }

    @property
    def form(self) -> Json:
        """For scoring; empty for ordinary text, which needs no treatment."""
        if self.published:
            return {"form": self.published.form}
        if self.subwords == SENTENCEPIECE:
            return {}
        plain = {"moses": False, "lowercased": False, "hyphens": None}
        return {"form": plain | {"subwords": self.subwords}}


def prepare(config: PrepareConfig) -> Path:
    """Makes `config.out`, unless it exists; returns it. Raises UserError."""
    if config.languages[0] == config.languages[1]:
        raise UserError(f"source and target language are both {config.languages[0]!r}")
    for lang in config.languages:
        if (name := re.sub(r"\W", "_", lang)) != lang:  # as fairseq parses SPLIT.SOURCE-TARGET.LANG
            todo = f"name the files of its text .{name}, and give {name}"
            raise UserError("is no name of a language to fairseq", lang, todo)
    needed = () if config.like else ("train", "valid")
    files = find_files(config.text, config.splits, config.languages, needed)
    named = {split: _name(config, source) for split, (source, _) in files.items()}
    paths = [path for text in files.values() for path in text]
    identity: Json = {
        "options": config.options | {"splits": named},
        "origin": dict(config.origin),
        "inputs": {_name(config, path): {"sha256": sha256_of_text(path)} for path in paths},
    }
    for path in config.reused:
        if not path.is_file():
            todo = "give a folder that data prepare made with these languages"
            raise UserError("file not found", path, todo)
        identity["inputs"][f"like/{path.name}"] = {"sha256": sha256(path)}
    made = build_folder(
        config.out, identity, lambda folder: _build(config, files, folder), force=config.force
    )
    print(f"{config.out}: {'ready' if made else 'is up to date, nothing to do'}", flush=True)
    return config.out


def _name(config: PrepareConfig, path: Path) -> str:  # compressed or not
    return path.relative_to(config.text).as_posix().removesuffix(".gz")


def _build(config: PrepareConfig, files: Mapping[str, Pair], folder: Path) -> Json:
    """Fills the folder; returns content of the manifest."""
    (folder / "raw").mkdir()
    raw = {split: pair_in(folder / "raw", split, config.languages) for split in files}
    pairs = files if config.published else raw  # published text is read unchanged
    reports = check_sets(files, None if config.published else raw, config.allowed_loss)
    units = _segment(config, pairs, reports, folder)
    cleaned = _clean(config, reports, folder)
    print("binarising ...", flush=True)
    options = config.published.preprocess_options() if config.published else ["--joined-dictionary"]
    if config.like:
        _, source, target = map(str, config.reused)
        options = ["--srcdict", source, "--tgtdict", target]
    binarise(folder, list(files), config.languages, options, config.jobs)
    for split in files:
        check_binarised(folder, split, config.languages, reports[split].kept)
        for path in pair_in(folder, split, config.languages):
            path.unlink()  # made again from raw/ and the subword model at any time
    if config.published:
        shutil.copytree(config.text / "raw", folder / "raw", dirs_exist_ok=True)
    else:
        for path in pairs.get("train", ()):
            path.unlink()
    check_losses(reports, config.allowed_loss)
    print(*report_lines(reports), sep="\n", flush=True)
    return {
        **config.form,
        "versions": versions("fairseq", config.subwords.replace("_", "-"), "fairseq-collab"),
        "sets": {split: asdict(report) for split, report in reports.items()},
        "subword_units": units,
        "cleaned": cleaned,
    }


def _segment(
    config: PrepareConfig,
    pairs: Mapping[str, Pair],
    reports: Mapping[str, SetReport],
    folder: Path,
) -> int:
    """Writes every set in subwords to `folder`; how many units or merges were learnt here."""
    if config.published and config.published.segmented:
        for split, pair in pairs.items():
            for source, target in zip(pair, pair_in(folder, split, config.languages), strict=True):
                shutil.copyfile(source, target)
        return 0
    is_bpe = config.subwords == SUBWORD_NMT
    model, learnt = folder / config.model, 0
    if config.like:
        shutil.copyfile(config.like / model.name, model)
    else:
        print(f"learning {config.vocab_size} subwords ...", flush=True)
        # source first, as in fairseq's scripts: the order decides between equally frequent pairs
        learn = subwords.learn_merges if is_bpe else subwords.train_pieces
        learnt = learn(pairs["train"], config.vocab_size, model)
    for split, report in reports.items():
        print(f"segmenting {split} ...", flush=True)
        texts = pairs[split], pair_in(folder, split, config.languages)
        if is_bpe:
            report.tokens = subwords.apply_merges(model, *texts)
        else:
            subwords.write_pieces(model, *texts, report, drop=split == "train")
    return learnt


def _clean(config: PrepareConfig, reports: Mapping[str, SetReport], folder: Path) -> Json:
    """Drops segmented pairs for their lengths, if the corpus asks for it; counts by set."""
    counts: Json = {}
    cleaned = config.published.cleaned if config.published else {}
    for split, limits in cleaned.items():
        pair = pair_in(folder, split, config.languages)
        before = pair_in(folder, f"{split}.all", config.languages)
        for path, aside in zip(pair, before, strict=True):
            path.rename(aside)
        counts[split] = clean_pairs(before, pair, limits)
        reports[split].kept, reports[split].tokens = counts[split]["kept"], counts[split]["tokens"]
        for path in before:
            path.unlink()
    return counts


def binarise(
    folder: Path, splits: Sequence[str], languages: Languages, options: Sequence[str], jobs: int
) -> None:
    """Runs fairseq-preprocess on the texts SPLIT.LANG of `folder`, and writes into it.

    Raises UserError with the program's last lines if it fails.
    """
    arguments = ["--source-lang", languages[0], "--target-lang", languages[1], *options]
    for option in ("train", "valid", "test"):
        if chosen := [split for split in splits if split.startswith(option)]:
            arguments += [f"--{option}pref", ",".join(chosen)]
    arguments += ["--destdir", ".", "--workers", str(jobs)]
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_cli.preprocess", *arguments],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    )  # fmt: skip
    if done.returncode:
        last = " | ".join(line.strip() for line in done.stdout.splitlines()[-5:])
        raise UserError(f"fairseq-preprocess failed with status {done.returncode}: {last}")
    (folder / "preprocess.log").unlink(missing_ok=True)  # it has the number of processes in it


def check_binarised(folder: Path, split: str, languages: Languages, expected: int) -> None:
    """Raises UserError unless both sides hold the number of sentences that fairseq was given."""
    for lang in languages:
        index = folder / f"{split}.{'-'.join(languages)}.{lang}.idx"
        with index.open("rb") as stream:  # magic number (9 bytes), version (8), type (1), sentences
            count = int.from_bytes(stream.read(26)[18:], "little")
        if count != expected:
            raise UserError(f"{index.name}: {count} sentences binarised of {expected} given")


def add_prepare_options(parser: argparse.ArgumentParser, vocab_size: int) -> None:
    """The options of every command that prepares text which is not a published corpus."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--vocab-size", type=positive, default=vocab_size, metavar="N",
        help=f"subwords of both languages together; merges of subword_nmt (default: {vocab_size})",
    )  # fmt: skip
    parser.add_argument(
        "--allow-loss", type=share, default=ALLOWED_LOSS, metavar="SHARE",
        help=f"share of a set that may be dropped for faults (default: {ALLOWED_LOSS})",
    )  # fmt: skip
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="processes")
    parser.add_argument("--force", action="store_true", help="rebuild --out")


def config_from(args: argparse.Namespace, text: Path, **more: Any) -> PrepareConfig:
    """The configuration that `add_prepare_options` and --source-lang, --target-lang ask for."""
    return PrepareConfig(
        text=text,
        out=args.out,
        languages=(args.source_lang, args.target_lang),
        vocab_size=args.vocab_size,
        jobs=args.jobs,
        allowed_loss=args.allow_loss,
        force=args.force,
        **more,
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=PROG, description="Makes a folder for fairseq-train from a folder of parallel text."
    )
    parser.add_argument("--text", type=Path, required=True, metavar="DIR", help="folder of text")
    parser.add_argument("--source-lang", required=True, metavar="LANG")
    parser.add_argument("--target-lang", required=True, metavar="LANG")
    parser.add_argument(
        "--like", type=Path, metavar="DATA",
        help="take subwords and dictionaries of this data folder, for a model that was trained on "
        "it; then one set of train, valid and test is enough",
    )  # fmt: skip
    parser.add_argument(
        "--subwords", choices=(SENTENCEPIECE, SUBWORD_NMT), default=SENTENCEPIECE,
        help="sentencepiece for ordinary text (default), subword_nmt for text in tokens; train "
        "with common_eval.post_process of that name",
    )  # fmt: skip
    add_prepare_options(parser, vocab_size=8000)
    args = parser.parse_args(argv)
    if args.like:
        for name in ("vocab_size", "subwords"):
            if getattr(args, name) != parser.get_default(name):
                parser.error(f"--{name.replace('_', '-')} has no effect with --like")
        is_bpe = (args.like / subwords.CODES).exists()
        args.subwords = SUBWORD_NMT if is_bpe else SENTENCEPIECE
    more = {"subwords": args.subwords, "like": args.like}
    return run(PROG, lambda: prepare(config_from(args, args.text, **more)))
