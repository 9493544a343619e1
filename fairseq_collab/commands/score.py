"""``fairseq-collab score``: scores of runs, of a checkpoint, or of a file of translations.

Of several runs those are measured that have no scores yet.  A checkpoint that was not trained in a
run is made into one with ``--run FOLDER``, which tables, tests and reports read like any other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.commands import options
from fairseq_collab.metrics.bleu import Score, score, summary
from fairseq_collab.runs.evaluate import check_test_set, evaluate, task_of
from fairseq_collab.runs.existing import configuration, make_run
from fairseq_collab.runs.fairseq_output import read_hypotheses, read_lines
from fairseq_collab.runs.record import Task
from fairseq_collab.runs.run import Run, find_runs
from fairseq_collab.runs.translations import System, examples, read_system

PROG = "fairseq-collab score"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROG,
        description="BLEU and chrF (sacreBLEU, detokenised, cased) of fairseq-generate's output; "
        "or all of a trained run: its checkpoints are averaged, the test set is translated, and "
        "score.json is written; or all of a checkpoint, as a run of its own (--run).",
    )
    parser.add_argument(
        "what", type=Path, nargs="+", metavar="GENERATION|RUN|CHECKPOINT",
        help="what fairseq-generate --remove-bpe sentencepiece printed, or the folder of a run; of "
        "several runs, or a folder of runs, those that have no scores yet are translated",
    )  # fmt: skip
    parser.add_argument(
        "--reference", type=Path,
        help="raw reference text, a sentence a line (a run has its own: raw/ in the data folder)",
    )  # fmt: skip
    parser.add_argument(
        "--gen-subset", metavar="SUBSET",
        help="another test set of the run's data folder, such as test1: writes "
        "generation.SUBSET.txt and score.SUBSET.json (default: dataset.gen_subset)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object (a run)")
    parser.add_argument("--examples", type=int, default=0, metavar="N", help="show N translations")
    made = parser.add_argument_group("a checkpoint that was not trained in a run")
    made.add_argument("--run", type=Path, metavar="FOLDER", help="make it a run, in this folder")
    made.add_argument("--data", type=Path, metavar="DATA", help="the data folder")
    made.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="what the run is, such as method=voted; or how it is measured, in fairseq's terms, "
        "such as generation.beam=1",
    )  # fmt: skip
    made.add_argument("--cpu", action="store_true", help="use no GPU, even if there is one")
    return parser


def main(argv: list[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.run:
        return score_checkpoint(parser, args, [*PROG.split(), *argv])
    options.refuse(parser, args, ("data", "set", "cpu"), "goes with a checkpoint and --run")
    if any(path.is_dir() for path in args.what):
        if args.reference:
            parser.error("argument --reference: a run has its own, raw/ in the data folder")
        found = find_runs(path.resolve() for path in args.what)
        runs = [run.for_subset(args.gen_subset) for run in found]
        alone = len(args.what) == 1 and Run(args.what[0]).config_file.exists()
        if not alone:
            return score_runs(runs, args)
        score_run(runs[0], args, again=True)
        return 0
    if len(args.what) > 1:
        parser.error("give one output of fairseq-generate, or runs")
    if args.gen_subset:
        parser.error("argument --gen-subset: only a run has test sets; give its folder")
    if not args.reference:
        parser.error("argument --reference: needed, unless the folder of a run is given")
    (generation,) = args.what
    system = System(generation, read_hypotheses(generation), read_lines(args.reference))
    result = score(system.hypotheses, system.references)
    show(asdict(result), summary(result), system, generation, args)
    return 0


def score_checkpoint(
    parser: argparse.ArgumentParser, args: argparse.Namespace, command: list[str]
) -> int:
    """Make a run of a checkpoint, and do what is missing of it."""
    if len(args.what) != 1 or args.what[0].is_dir() or args.reference or args.gen_subset:
        parser.error("argument --run: goes with one checkpoint, --data, --set and --cpu")
    if not args.data:
        parser.error("argument --data: needed with --run")
    chosen = {}
    for text in args.set:
        name, equals, value = text.partition("=")
        if not (name and equals):
            parser.error(f"argument --set: {text!r} is not NAME=VALUE")
        chosen[name] = value
    run, checkpoint = Run(args.run.resolve()), args.what[0].resolve()
    config = configuration(checkpoint, args.data.resolve(), chosen, args.cpu)
    # What is refused leaves no folder behind.
    check_options(run, task_of(config), args)
    if not run.score_file.exists():
        check_test_set(run, config)
    with run.locked():
        make_run(run, checkpoint, config, chosen, command)
    score_run(run, args, again=False)
    return 0


def score_runs(runs: Sequence[Run], args: argparse.Namespace) -> int:
    """Score the runs that have no scores yet, whatever becomes of the others; the exit status."""
    for run in runs:
        check_test_set(run)
    failed = 0
    for run in runs:
        try:
            score_run(run, args, again=False, name=run.name)
        except UserError as error:
            failed = 1
            print(f"{PROG}: error: {error}", file=sys.stderr, flush=True)
    return failed


def score_run(run: Run, args: argparse.Namespace, again: bool, name: str | None = None) -> None:
    """Average, measure and show a trained run; measured only if it has no scores, or ``again``.

    Args:
        name: shown, if the run is one of several.
    """
    record = None if again else run.score()
    check_options(run, record.task if record else task_of(run.config()), args)
    if record is None:
        with run.locked() as lock:
            record = evaluate(run, lock)
    if record.task == "language_modeling":
        lines = [f"perplexity {x:.2f}  {subset}" for subset, x in (record.perplexity or {}).items()]
        show({"perplexity": record.perplexity}, "\n".join(lines), None, None, args, name)
        return
    system = read_system(run.folder, subset=run.subset)
    result = Score(**{field.name: getattr(record, field.name) for field in fields(Score)})
    show(asdict(result), summary(result), system, run.generation, args, name)


def check_options(run: Run, task: Task, args: argparse.Namespace) -> None:
    """Raises UserError where an option is of translations, and the run is a language model."""
    if args.examples and task == "language_modeling":
        what = f"is of translations, and {run.name} is a language model"
        raise UserError(what, "--examples", "leave it out")


def show(
    content: dict[str, Any],
    text: str,
    system: System | None,
    generation: Path | None,
    args: argparse.Namespace,
    run: str | None = None,
) -> None:
    """Print scores, and what else the options ask for; ``run`` is named if it is one of several."""
    if run is not None:
        content, text = {"run": run, **content}, f"{run}\n{text}\n"
    if args.examples > 0 and system and generation:
        print(examples(generation, system.references, args.examples), end="\n\n")
    print(json.dumps(content) if args.json else text, flush=True)
