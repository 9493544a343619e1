"""``fairseq-collab score``: BLEU and chrF of a run, or of what ``fairseq-generate`` printed.

A run is translated and scored on its own test set, or on another one of its data folder with
``--gen-subset``; of several runs those that have no such scores yet.  Scores are sacreBLEU's, on
detokenised, cased text against the untouched reference, and always carry their signature.
``--rouge`` adds those of summaries (:mod:`fairseq_collab.metrics.rouge`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF

from fairseq_collab.metrics import rouge
from fairseq_collab.results.rows import find_runs
from fairseq_collab.runs.run import Run, read_json
from collab_common.errors import UserError

#: Lines of fairseq-generate: ``D-17<tab>-0.31<tab>text``, a detokenised hypothesis with its score,
#: and ``S-17<tab>text``, its source.
_HYPOTHESIS = re.compile(r"D-(\d+)\t[^\t]*\t?(.*)")
_SOURCE = re.compile(r"S-(\d+)\t(.*)")
#: Its own clock, which leaves out how long it takes to start and to load the model.
_CLOCK = re.compile(r"Translated [\d,]+ sentences .*\(([\d.]+) sentences/s, ")


@dataclass(frozen=True)
class Score:
    """Corpus scores (0 to 100) with the signatures that say how they were computed."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    length_ratio: float
    sentences: int


@dataclass(frozen=True)
class Scored:
    """What was scored: fairseq-generate's output, and the translations in it as ordinary text."""

    generation: Path
    hypotheses: list[str]
    references: list[str]
    score: Score


def read_hypotheses(path: Path) -> list[str]:
    """The best hypothesis of every sentence, in the order of the corpus.

    Raises:
        UserError: the file has no hypotheses, or lacks some.
    """
    found: dict[int, str] = {}
    for line in _lines(path):
        match = _HYPOTHESIS.fullmatch(line)
        if match:
            found.setdefault(int(match[1]), match[2])  # the first is the best
    if not found:
        raise UserError(
            "no hypotheses (lines that start with D-) in it",
            where=path,
            todo="give the output of fairseq-generate, run without --quiet",
        )
    missing = set(range(max(found) + 1)) - found.keys()
    if missing:
        raise UserError(
            f"hypothesis {min(missing)} is missing ({len(missing)} of {max(found) + 1})",
            where=path,
            todo="generate the whole set (fairseq-generate --skip-invalid-size-inputs-valid-test "
            "drops sentences)",
        )
    return [found[i] for i in range(len(found))]


def readable(hypotheses: list[str], data: Path, language: str) -> list[str]:
    """Ordinary text: hypotheses in Moses tokens, where the data folder says so, are detokenised."""
    form = (read_json(data / "manifest.json") or {}).get("form")
    if form is None:  # raw text and sentencepiece: data_prep.prepare
        return hypotheses
    from data_prep.moses import ordinary_text  # only here: it needs the Moses tools

    return ordinary_text(hypotheses, form, language)


def examples(generation: Path, references: list[str], number: int) -> str:
    """Sources, references and hypotheses of ``number`` sentences, evenly spread over the corpus."""
    hypotheses = read_hypotheses(generation)
    matches = (_SOURCE.fullmatch(line) for line in _lines(generation))
    sources = {int(match[1]): match[2] for match in matches if match}
    chosen = [i * len(hypotheses) // number for i in range(number)]
    return "\n\n".join(
        f"source      {sources.get(i, '')}\n"
        f"reference   {references[i]}\n"
        f"translation {hypotheses[i]}"
        for i in chosen
    )


def decoding_speed(printed: str) -> float | None:
    """Sentences a second by ``fairseq-generate``'s own clock; None where it has not printed it.

    Args:
        printed: its output or its log, wherever fairseq's logger has written.
    """
    found = _CLOCK.findall(printed)
    return float(found[-1]) if found else None


def read_references(path: Path) -> list[str]:
    """The sentences of a plain text file."""
    return _lines(path)


def score(hypotheses: list[str], references: list[str]) -> Score:
    """Compute corpus BLEU (13a, cased) and chrF.

    Raises:
        UserError: as many hypotheses as references are needed.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references",
            todo="give the reference of the set that was translated",
        )
    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references])
    chrf_score = chrf.corpus_score(hypotheses, [references])
    return Score(
        bleu=bleu_score.score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score.score,
        chrf_signature=str(chrf.get_signature()),
        length_ratio=bleu_score.sys_len / bleu_score.ref_len,
        sentences=len(references),
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab score",
        description="BLEU and chrF (sacreBLEU, detokenised, cased) of fairseq-generate's output; "
        "or all of a trained run: its checkpoints are averaged, the test set is translated, and "
        "score.json is written.",
    )
    parser.add_argument(
        "what",
        type=Path,
        nargs="+",
        metavar="GENERATION|RUN",
        help="what fairseq-generate --remove-bpe sentencepiece printed, or the folder of a run; of "
        "several runs, or a folder of runs, those that have no scores yet are translated",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        help="raw reference text, a sentence a line (a run has its own: raw/ in the data folder)",
    )
    parser.add_argument(
        "--gen-subset",
        metavar="SUBSET",
        help="another test set of the run's data folder, such as test1: writes "
        "generation.SUBSET.txt and score.SUBSET.json (default: dataset.gen_subset)",
    )
    parser.add_argument(
        "--rouge", action="store_true", help="ROUGE-1, -2 and -L, too, with 95 %% intervals"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object (a run)")
    parser.add_argument("--examples", type=int, default=0, metavar="N", help="show N translations")
    args = parser.parse_args(argv)
    if any(path.is_dir() for path in args.what):
        if args.reference:
            parser.error("argument --reference: a run has its own, raw/ in the data folder")
        found = find_runs(path.resolve() for path in args.what)
        runs = [run.for_subset(args.gen_subset) for run in found]
        alone = len(args.what) == 1 and Run(args.what[0]).config_file.exists()
        return score_alone(runs[0], args) if alone else score_runs(runs, args)
    if len(args.what) > 1:
        parser.error("give one output of fairseq-generate, or runs")
    if args.gen_subset:
        parser.error("argument --gen-subset: only a run has test sets; give its folder")
    if not args.reference:
        parser.error("argument --reference: needed, unless the folder of a run is given")
    (generation,) = args.what
    hypotheses, references = read_hypotheses(generation), read_references(args.reference)
    show(Scored(generation, hypotheses, references, score(hypotheses, references)), args)
    return 0


def show(found: Scored, args: argparse.Namespace, run: str | None = None) -> None:
    """Print scores, and what else the options ask for; ``run`` is named if it is one of several."""
    content, text = asdict(found.score), summary(found.score)
    if args.rouge:
        rouges = rouge.rouge(found.hypotheses, found.references)
        content["rouge"] = asdict(rouges)
        text += "\n" + rouge.summary(rouges)
    if run is not None:
        content, text = {"run": run, **content}, f"{run}\n{text}\n"
    if args.examples > 0:
        print(examples(found.generation, found.references, args.examples), end="\n\n")
    print(json.dumps(content) if args.json else text, flush=True)


def score_alone(run: Run, args: argparse.Namespace) -> int:
    """Score one run, anew if it has scores.

    Raises:
        UserError: it cannot be scored.
    """
    show(score_run(run, anew=True), args)
    return 0


def score_runs(runs: Sequence[Run], args: argparse.Namespace) -> int:
    """Score the runs that have no scores yet, whatever becomes of the others.

    Returns:
        the exit status: 1 if some could not be scored, a line for each of them

    Raises:
        UserError: a data folder lacks the test set.
    """
    from fairseq_collab.runs.evaluate import check_test_set  # it imports this module

    for run in runs:
        check_test_set(run)
    failed = 0
    for run in runs:
        try:
            show(score_run(run, anew=False), args, run.name)
        except UserError as error:
            failed = 1
            print(f"fairseq-collab score: error: {error}", file=sys.stderr, flush=True)
    return failed


def score_run(run: Run, anew: bool) -> Scored:
    """Average, translate and score a trained run; unless ``anew``, only if it has no scores."""
    from fairseq_collab.results.compare import read_system  # both import this module
    from fairseq_collab.runs.evaluate import evaluate

    found = None if anew else run.score()
    if found is None:
        with run.locked() as lock:
            found = evaluate(run, lock)
    names = [field.name for field in fields(Score)]
    missing = [name for name in names if name not in found]
    if missing:
        raise UserError(f"lacks {', '.join(missing)}", run.score_file, "score this run alone")
    result = Score(**{name: found[name] for name in names})
    system = read_system(run.folder, subset=run.subset)
    return Scored(run.generation, system.hypotheses, system.references, result)


def summary(result: Score) -> str:
    """Two lines: BLEU and chrF, each with its signature."""
    return (
        f"BLEU {result.bleu:.2f}  (length ratio {result.length_ratio:.3f}, "
        f"{result.sentences} sentences)  {result.bleu_signature}\n"
        f"chrF {result.chrf:.2f}  {result.chrf_signature}"
    )


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=path) from error
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 at byte {error.start}", where=path) from error
    # Not splitlines(), which also splits at U+2028 and the like.
    return text.removesuffix("\n").split("\n")
