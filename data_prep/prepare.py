"""From a folder of text to a folder that fairseq trains on: `python -m data_prep.prepare`.

Checks the text, learns joint subwords with sentencepiece (or, of text in tokens, subword-nmt),
binarises with fairseq-preprocess. The resulting folder holds, beside fairseq's files,

    spm.model       the subword model; of subword-nmt: code, and vocab.LANG with a threshold
    raw/            valid and test as plain text: the references that BLEU is counted against
    manifest.json   inputs, options, versions, line counts of every stage, hash of every file

and appears under its name only when it is complete.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from collab_common.command import positive, run
from collab_common.errors import UserError
from collab_common.files import sha256_of_text
from collab_common.folder import Json, build_folder
from collab_common.provenance import versions
from data_prep.apply_bpe import CODES_ALONE, BpeOptions
from data_prep.binarise import binarise, check_binarised
from data_prep.faults import Action, Kind, Policy, add_policy_options, policy_from
from data_prep.options import add_bpe_options, add_output
from data_prep.parallel_text import pair_in
from data_prep.splits import Splits, collect_splits, find_files, split_option
from data_prep.validate import Report, validate
from data_prep.work import Work, segment

PROG = "data_prep.prepare"
_HELD_OUT = "mend the file; lines of valid and test sets are never dropped"
SUBWORDS = ("sentencepiece", "subword_nmt")
#: Of text that subword_nmt segments, for scoring: whatever its tokens are, its maker knows.
FORM: Json = {"moses": False, "lowercased": False, "hyphens": None}
_CANNOT_STAY = (Kind.UTF8, Kind.CR, Kind.NUL)  # fairseq could not read such a line
Texts = Sequence[tuple[Path, Path]]  # source and target of each text of a split


@dataclass(frozen=True)
class PrepareConfig:
    """What to prepare.

    Args:
        text: folder with STEM.LANG (or STEM.LANG.gz) for each split and language
        out: the folder to make
        splits: fairseq's name of each split (train, valid, test, test1, test2, ...) and its
            STEM, for the training set also several, which are joined in that order; None for what
            is found in the folder: train, valid, test, test.1, test.2, ...
        policy: what to do about faulty lines. Valid and test sets are never shortened: where
            lines of the training set would be dropped, theirs are counted, or refused if they
            cannot be kept.
        subwords: one of SUBWORDS; subword_nmt takes the words of the text as they are, between
            blanks, and makes `vocab_size` merges
        bpe: of subword_nmt alone
        origin: where the text comes from, for the manifest (a name, a seed, ...)
        force: rebuild `out` if it was made from something else
    """

    text: Path
    out: Path
    source_lang: str
    target_lang: str
    vocab_size: int
    splits: Splits | None = None
    workers: int = 1
    policy: Policy = field(default_factory=Policy)
    subwords: str = SUBWORDS[0]
    bpe: BpeOptions = CODES_ALONE
    origin: Mapping[str, Any] = field(default_factory=dict)
    force: bool = False


def prepare(config: PrepareConfig) -> Path:
    """Makes `config.out`, unless it is there already; returns it. Raises UserError."""
    _check(config)
    files = find_files(config.text, config.splits, (config.source_lang, config.target_lang))
    identity: Json = {
        "options": {
            "source_lang": config.source_lang,
            "target_lang": config.target_lang,
            "vocab_size": config.vocab_size,
            "splits": {split: _stems(config, texts) for split, texts in files.items()},
            "validation": config.policy.as_json(),
            **_subword_options(config),
        },
        "origin": dict(config.origin),
        "inputs": {
            _name(config, path): {"sha256": sha256_of_text(path)}
            for texts in files.values()
            for pair in texts
            for path in pair
        },
    }
    made = build_folder(
        config.out, identity, lambda folder: _build(config, files, folder), force=config.force
    )
    print(f"{config.out}: {'ready' if made else 'is up to date, nothing to do'}", flush=True)
    return config.out


def _subword_options(config: PrepareConfig) -> Json:
    """For the manifest; nothing of the default, as in the folders that were made without."""
    return {"subwords": config.subwords, **config.bpe.as_json()} if _is_bpe(config) else {}


def _is_bpe(config: PrepareConfig) -> bool:
    return config.subwords == "subword_nmt"


def _name(config: PrepareConfig, path: Path) -> str:
    """Of an input, the same whether it is compressed or not and wherever the text folder is."""
    return path.relative_to(config.text).as_posix().removesuffix(".gz")


def _stems(config: PrepareConfig, texts: Texts) -> str | list[str]:
    stems = [_name(config, source).removesuffix(f".{config.source_lang}") for source, _ in texts]
    return stems[0] if len(stems) == 1 else stems


def _check(config: PrepareConfig) -> None:
    if config.source_lang == config.target_lang:
        raise UserError(f"source and target language are both {config.source_lang!r}")
    if config.bpe != CODES_ALONE and not _is_bpe(config):
        option = next(iter(config.bpe.as_json())).replace("_", "-")
        raise UserError(f"--{option}: is of subword-nmt", todo="give --subwords subword_nmt")
    for kind in _CANNOT_STAY:
        if config.policy.action(kind) is Action.COUNT:
            raise UserError(
                f"--on-{kind.value} count: such a line cannot be binarised as it is",
                todo=f"give --on-{kind.value} refuse or drop",
            )


def _build(config: PrepareConfig, files: Mapping[str, Texts], folder: Path) -> Json:
    """Fills the folder; returns the manifest's account of it."""
    languages = (config.source_lang, config.target_lang)
    raw = folder / "raw"
    raw.mkdir()
    stages: Json = {}
    reports: dict[str, list[Report]] = {}
    for split, texts in files.items():
        print(f"checking {split} ...", flush=True)
        policy = _policy_for(split, config.policy)
        reports[split] = _join(texts, split, policy, pair_in(raw, split, languages))
        stages[split] = _add([report.counts() for report in reports[split]])
    bpe = config.bpe if _is_bpe(config) else None
    work = Work(config.text, folder, raw, languages, config.workers, bpe)
    counts = segment(
        work,
        config.vocab_size,
        tuple(files),
        on_empty=lambda split: _policy_for(split, config.policy).action(Kind.EMPTY),
        where=lambda split: partial(_line_of, reports[split]),
    )
    print("binarising ...", flush=True)
    binarise(folder, {split: split for split in files}, languages, config.workers)
    for split in files:
        segmented = stages[split]["segmented"] = counts[split]
        expected = segmented["read"] - segmented.get("dropped", 0)
        stages[split]["binarised"] = check_binarised(folder, split, languages, expected)
    # made again from raw/ and spm.model at any time, or, for the training set, from the inputs
    for path in (*work.scratches("train"), *chain(*map(work.results, files))):
        path.unlink()
    return {
        **({"form": FORM | _subword_options(config)} if _is_bpe(config) else {}),
        "versions": versions("fairseq", config.subwords.replace("_", "-"), "fairseq-collab"),
        "workers": config.workers,
        "stages": stages,
        "subword": counts["learnt"],
    }


def _join(texts: Texts, split: str, policy: Policy, out: tuple[Path, Path]) -> list[Report]:
    """Writes what the checks keep of all texts of a split to `out`; what they found in each."""
    reports = []
    for text in texts:
        report = validate(*text, policy, out)
        report.check("" if split == "train" else _HELD_OUT)
        if report.found[Kind.COPY] == report.read > 0:
            what = f"is the same text as {text[0]}: there is nothing to translate"
            raise UserError(what, text[1], "give the translation")
        reports.append(report)
    if not sum(report.kept for report in reports):
        todo = "fairseq could do nothing with an empty set"
        raise UserError(f"no sentence pair for the {split} set", texts[0][0], todo)
    return reports


def _line_of(reports: Sequence[Report], side: int, line: int) -> str:
    """FILE:LINE of a line of the joined text, by the text that it comes from."""
    for report in reports:
        if line <= report.kept:
            break
        line -= report.kept
    return f"{(report.source, report.target)[side]}:{report.original_line(line)}"


def _add(counts: Sequence[Json]) -> Json:
    """Sums numbers, and the numbers inside of mappings."""
    total: Json = {}
    for key in dict.fromkeys(key for count in counts for key in count):
        values = [count[key] for count in counts if key in count]
        total[key] = _add(values) if isinstance(values[0], Mapping) else sum(values)
    return total


def _policy_for(split: str, policy: Policy) -> Policy:
    """Valid and test sets stay whole, or scores could not be compared with anybody else's."""
    if split == "train":
        return policy
    actions = {kind: policy.action(kind) for kind in Kind}
    for kind, action in actions.items():
        if action is Action.DROP:
            actions[kind] = Action.REFUSE if kind in _CANNOT_STAY else Action.COUNT
    return Policy(actions, policy.limits)


def add_prepare_options(parser: argparse.ArgumentParser, vocab_size: int) -> None:
    """The options of every command that ends in `prepare`."""
    add_output(parser)
    parser.add_argument(
        "--vocab-size",
        type=positive,
        default=vocab_size,
        metavar="N",
        help=f"subwords of both languages together (default: {vocab_size}); of subword_nmt: merges",
    )
    parser.add_argument(
        "--subwords",
        choices=SUBWORDS,
        default=SUBWORDS[0],
        help=f"of ordinary text sentencepiece's (default: {SUBWORDS[0]}), of text in tokens "
        "subword-nmt's; train with common_eval.post_process of that name",
    )
    add_bpe_options(parser)
    parser.add_argument(
        "--workers", type=positive, default=1, metavar="N", help="processes that binarise"
    )
    add_policy_options(parser)


def config_from(args: argparse.Namespace, text: Path, **more: Any) -> PrepareConfig:
    """The configuration that `add_prepare_options` and --source-lang, --target-lang ask for."""
    return PrepareConfig(
        text=text,
        out=args.out,
        source_lang=args.source_lang,
        target_lang=args.target_lang,
        vocab_size=args.vocab_size,
        workers=args.workers,
        policy=policy_from(args),
        subwords=args.subwords,
        bpe=BpeOptions.from_json(vars(args)),
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
        "--split",
        action="append",
        type=split_option,
        metavar="NAME=STEM",
        help="STEM.LANG is the split NAME (train, valid, test, test1, ...); once for each split, "
        "but several training texts are joined. STEM may be in a folder below DIR. Default: train, "
        "valid, test, and test.N as testN, as far as they are there",
    )
    add_prepare_options(parser, vocab_size=8000)
    args = parser.parse_args(argv)
    return run(
        PROG, lambda: prepare(config_from(args, args.text, splits=collect_splits(args.split)))
    )


if __name__ == "__main__":
    sys.exit(main())
