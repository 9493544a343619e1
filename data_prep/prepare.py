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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collab_common import BREAK
from collab_common.binarised import sentences_in
from collab_common.command import Parser, positive, run, share
from collab_common.errors import UserError
from collab_common.files import sha256, sha256_of_text
from collab_common.folder import Json, build_folder
from collab_common.provenance import versions
from data_prep import subwords
from data_prep.check import ALLOWED_LOSS, SetReport, check_losses, check_sets, report_lines
from data_prep.clean_pairs import clean_pairs
from data_prep.corpus import SENTENCEPIECE, SUBWORD_NMT, Corpus
from data_prep.documents import join_documents
from data_prep.parallel_text import Languages, Pair, find_files, lines_of, pair_in
from data_prep.plausible import suspicions

PROG = "fairseq-collab data prepare"
#: The form of text that the user has tokenised.
TOKENS: Json = {"moses": False, "lowercased": False, "hyphens": None, "subwords": SUBWORD_NMT}


def prepare(
    corpus: Corpus,
    text: Path,
    out: Path,
    *,
    jobs: int = 1,
    allowed_loss: float = ALLOWED_LOSS,
    force: bool = False,
) -> Path:
    """Make the data folder ``out``, unless it exists, and return it.

    Args:
        text: folder with STEM.LANG (or STEM.LANG.gz) for each split and language
        jobs: number of processes of fairseq-preprocess, which does not change the result
        allowed_loss: largest share of a set that may be dropped as faulty
        force: rebuild ``out`` if it was made from something else
    """
    if corpus.languages[0] == corpus.languages[1]:
        raise UserError(f"source and target language are both {corpus.languages[0]!r}")
    for lang in corpus.languages:
        if (name := re.sub(r"\W", "_", lang)) != lang:  # as fairseq parses SPLIT.SOURCE-TARGET.LANG
            todo = f"rename the files of this language to end in .{name}, and give {name}"
            raise UserError("fairseq cannot use this as the name of a language", lang, todo)
    needed = () if corpus.like else ("train", "valid")
    files = find_files(text, corpus.splits, corpus.languages, needed)
    is_new = build_folder(
        out,
        _identity(corpus, text, files),
        lambda folder: _build(corpus, text, files, folder, jobs, allowed_loss),
        force=force,
    )
    print(f"{out}: {'ready' if is_new else 'is up to date, nothing to do'}", flush=True)
    return out


def _identity(corpus: Corpus, text: Path, files: Mapping[str, Pair]) -> Json:
    """Return everything that decides about the result: options, and the hash of every input."""
    names = {  # the same hash, whether compressed or not
        path: path.relative_to(text).as_posix().removesuffix(".gz")
        for pair in files.values()
        for path in pair
    }
    inputs = {name: {"sha256": sha256_of_text(path)} for path, name in names.items()}
    for path in corpus.reused:
        if not path.is_file():
            todo = "give a folder that data prepare made with these languages"
            raise UserError("file not found", path, todo)
        inputs[f"like/{path.name}"] = {"sha256": sha256(path)}
        if max(corpus.documents, default=1) > 1 and path.name.startswith("dict."):
            _check_for_breaks(path)
    splits = {split: names[source] for split, (source, _) in files.items()}
    options = corpus.options | {"splits": splits}
    return {"options": options, "origin": corpus.origin, "inputs": inputs}


def _check_for_breaks(dictionary: Path) -> None:
    """Raise UserError for a dictionary that cannot hold documents, because it has no break."""
    if not any(line.startswith(f"{BREAK} ") for line in lines_of(dictionary)):
        todo = "leave --documents out, or give a folder that was made with it"
        raise UserError(f"has no symbol {BREAK} to join sentences with", dictionary, todo)


def _build(
    corpus: Corpus,
    text: Path,
    files: Mapping[str, Pair],
    folder: Path,
    jobs: int,
    allowed_loss: float,
) -> Json:
    """Fill the folder, and return further content of its manifest."""
    (folder / "raw").mkdir()
    raw = {split: pair_in(folder / "raw", split, corpus.languages) for split in files}
    kept = None if corpus.archives else raw
    reports = check_sets(files, kept, allowed_loss, blank_lines=bool(corpus.documents))
    texts = files if corpus.archives else raw
    warnings = [*suspicions(texts, corpus.languages)]
    warnings += _segment(corpus, texts, reports, folder)
    _clean(corpus, reports, folder)
    _join(corpus, texts, reports, folder)
    print("binarising ...", flush=True)
    binarise(folder, list(files), corpus.languages, corpus.dictionaries, jobs)
    for split in files:
        expected = reports[split].documents or reports[split].kept
        check_binarised(folder, split, corpus.languages, expected)
        count_unknown(folder, split, corpus.languages, reports[split])
        for path in pair_in(folder, split, corpus.languages):
            path.unlink()  # made again from raw/ and the subword model at any time
    if corpus.archives:
        shutil.copytree(text / "raw", folder / "raw", dirs_exist_ok=True)
    else:
        for path in raw.get("train", ()):
            path.unlink()
    check_losses(reports, allowed_loss)
    print(*report_lines(reports), *(f"warning: {text}" for text in warnings), sep="\n", flush=True)
    form = corpus.form or (TOKENS if corpus.subwords == SUBWORD_NMT else None)
    return {
        **({"form": form} if form else {}),  # ordinary text needs no treatment
        "versions": versions("fairseq", corpus.subwords.replace("_", "-"), "fairseq-collab"),
        "sets": {split: asdict(report) for split, report in reports.items()},
        "warnings": warnings,
    }


def _segment(
    corpus: Corpus, texts: Mapping[str, Pair], reports: Mapping[str, SetReport], folder: Path
) -> list[str]:
    """Write every set in subwords to ``folder``; return warnings."""
    segmented = {split: pair_in(folder, split, corpus.languages) for split in texts}
    if corpus.segmented:
        for split, pair in texts.items():
            for source, target in zip(pair, segmented[split], strict=True):
                shutil.copyfile(source, target)
        return []
    is_bpe = corpus.subwords == SUBWORD_NMT
    breaks = [BREAK] if corpus.documents else []
    model = folder / corpus.model
    if corpus.like:
        shutil.copyfile(corpus.like / model.name, model)
    else:
        print(f"learning {corpus.vocab_size} subwords ...", flush=True)
        # source first, as in fairseq's scripts: the order decides between equally frequent pairs
        if is_bpe:
            subwords.learn_merges(texts["train"], corpus.vocab_size, model, breaks)
        else:
            subwords.train_pieces(texts["train"], corpus.vocab_size, model, breaks)
    file = corpus.reused[0] if corpus.like else model  # an error names the user's file
    segment = subwords.units_of(file, breaks) if is_bpe else subwords.pieces_of(file)
    for split, report in reports.items():
        print(f"segmenting {split} ...", flush=True)
        drop = None if corpus.archives else split == "train"
        subwords.write_subwords(
            segment, texts[split], segmented[split], report,
            drop=drop, symbols={*subwords.SYMBOLS, *breaks},
            mark=subwords.SEPARATOR if is_bpe else "",
        )  # fmt: skip
    if not corpus.like:
        return []
    known = (row.split(" ")[0] for row in lines_of(corpus.reused[1]))  # of the source
    return [*filter(None, [subwords.cut_tags(known, segment, model.name)])]


def _clean(corpus: Corpus, reports: Mapping[str, SetReport], folder: Path) -> None:
    """Drop segmented pairs whose lengths are beyond the limits of the corpus, if it has any."""
    for split, limits in corpus.cleaned.items():
        pair = pair_in(folder, split, corpus.languages)
        before = pair_in(folder, f"{split}.all", corpus.languages)
        for path, aside in zip(pair, before, strict=True):
            path.rename(aside)
        reports[split].kept, reports[split].tokens = clean_pairs(before, pair, **limits)
        for path in before:
            path.unlink()


def _join(
    corpus: Corpus, texts: Mapping[str, Pair], reports: Mapping[str, SetReport], folder: Path
) -> None:
    """Join the sentences of every set to documents, if the corpus has documents."""
    if not corpus.documents:
        return
    # pieces of sentencepiece have the blank within them, so its texts have one on one side only
    between = f" {BREAK} " if corpus.subwords == SUBWORD_NMT else f"{BREAK} "
    for split, text in texts.items():
        sizes = corpus.documents if split == "train" else corpus.documents[-1:]
        segmented = pair_in(folder, split, corpus.languages)
        kept = None if split == "train" else text
        join_documents(segmented, kept, reports[split], sizes, between)


def binarise(
    folder: Path, splits: Sequence[str], languages: Languages, options: Sequence[str], jobs: int
) -> None:
    """Run fairseq-preprocess on the texts SPLIT.LANG of ``folder``, and write into the folder.

    Raises:
        UserError: the program fails; the error has its last lines.
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
        output = " | ".join(line.strip() for line in done.stdout.splitlines()[-5:])
        raise UserError(f"fairseq-preprocess failed with status {done.returncode}: {output}")
    (folder / "preprocess.log").unlink(missing_ok=True)  # it names the number of processes


def count_unknown(folder: Path, split: str, languages: Languages, report: SetReport) -> None:
    """Count the lines of a set with a subword that the dictionary of their side lacks.

    Examples are characters that the training text does not have, and, with the subwords of another
    folder, all characters of another script.
    """
    for text, lang in zip(pair_in(folder, split, languages), languages, strict=True):
        known = {row.split(" ")[0] for row in lines_of(folder / f"dict.{lang}.txt")}
        known |= subwords.SYMBOLS  # text as published may have these words; check_set counts them
        for line in lines_of(text):
            if unknown := [unit for unit in line.split() if unit not in known]:
                report.unknown += 1
                report.first_unknown = report.first_unknown or unknown[0]


def check_binarised(folder: Path, split: str, languages: Languages, expected: int) -> None:
    """Raise UserError unless both sides hold the given number of sentences, to the last byte."""
    for lang in languages:
        index = folder / f"{split}.{'-'.join(languages)}.{lang}.idx"
        if (number := sentences_in(index)) != expected:
            raise UserError(f"{index.name}: only {number} of {expected} sentences were binarised")


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that makes a data folder."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="number of parallel processes"
    )
    parser.add_argument("--force", action="store_true", help="rebuild --out and its text")


def add_prepare_options(parser: argparse.ArgumentParser, vocab_size: int) -> None:
    """Add the options of every command that prepares text other than a published corpus."""
    add_output_options(parser)
    parser.add_argument(
        "--vocab-size", type=positive, default=vocab_size, metavar="N",
        help="number of subwords in the vocabulary of both languages, or of merges for "
        f"subword_nmt (default: {vocab_size})",
    )  # fmt: skip
    parser.add_argument(
        "--allow-loss", type=share, default=ALLOWED_LOSS, metavar="SHARE",
        help="largest share of a set's sentence pairs that may be dropped as faulty; the command "
        f"fails if more are faulty (default: {ALLOWED_LOSS})",
    )  # fmt: skip


def prepare_as_asked(args: argparse.Namespace, text: Path, **more: Any) -> Path:
    """Prepare text as ``--source-lang``, ``--target-lang`` and ``add_prepare_options`` say."""
    corpus = Corpus((args.source_lang, args.target_lang), args.vocab_size, **more)
    build_options = {"jobs": args.jobs, "allowed_loss": args.allow_loss, "force": args.force}
    return prepare(corpus, text, args.out, **build_options)


def _sizes(text: str) -> tuple[int, ...]:
    """Parse numbers of sentences, and return them ascending."""
    return tuple(sorted({positive(size) for size in text.split(",")}))


def main(argv: list[str] | None = None) -> int:
    """Run ``fairseq-collab data prepare``."""
    parser = Parser(prog=PROG, description="Make a data folder from a folder of parallel text.")
    parser.add_argument(
        "--text",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder with train.LANG, valid.LANG and optionally test.LANG of both languages",
    )
    parser.add_argument(
        "--source-lang", required=True, metavar="LANG", help="source language, as in train.LANG"
    )
    parser.add_argument(
        "--target-lang", required=True, metavar="LANG", help="target language, as in train.LANG"
    )
    parser.add_argument(
        "--like", type=Path, metavar="DATA",
        help="use the subwords and dictionaries of this data folder, to fine-tune or test a model "
        "that was trained on it; the text may then lack some of train, valid and test",
    )  # fmt: skip
    parser.add_argument(
        "--subwords", choices=(SENTENCEPIECE, SUBWORD_NMT), default=SENTENCEPIECE,
        help="sentencepiece for ordinary text (default), or subword_nmt for tokenised text, whose "
        "sweeps need common_eval.post_process=subword_nmt",
    )  # fmt: skip
    parser.add_argument(
        "--documents", type=_sizes, default=(), metavar="N,N", help="join up to N consecutive "
        f"sentences to a document, with {BREAK} between them: the training text once for each N, "
        "validation and test text only for the largest N; a line that is blank in both languages "
        "ends a document",
    )  # fmt: skip
    add_prepare_options(parser, vocab_size=8000)
    args = parser.parse_args(argv)
    if args.like:
        for name in ("vocab_size", "subwords"):
            if getattr(args, name) != parser.get_default(name):
                parser.error(f"--{name.replace('_', '-')} has no effect with --like")
        is_bpe = (args.like / subwords.CODES).exists()
        args.subwords = SUBWORD_NMT if is_bpe else SENTENCEPIECE
    more = {"subwords": args.subwords, "like": args.like, "documents": args.documents}
    return run(PROG, lambda: prepare_as_asked(args, args.text, **more))
