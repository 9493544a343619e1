"""``fairseq-collab score``: score runs, a checkpoint, or a file of translations.

All runs are scored in this one process; the scores of runs with a ``score.json`` are only printed.
``score CHECKPOINT DATA --run FOLDER`` turns a checkpoint into a run for tables and tests.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from collab_common.errors import UserError
from collab_lab.cli import options

if TYPE_CHECKING:
    from collab_lab.runs.run import Run

PROG = "fairseq-collab score"


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "score",
        "Compute BLEU and chrF (sacreBLEU, case-sensitive). For runs without score.json, "
        "average the checkpoints, translate the test set and write score.json. With --run, make "
        "a run from a checkpoint and score it. With --reference, score a file. A warning says so "
        "if the model was given the first words of the references (--prefix-size); without the log "
        "of fairseq-generate, this takes 40 sentences with different first words.",
    )
    parser.add_argument(
        "inputs", type=Path, nargs="+", metavar="RUN|FILE|CHECKPOINT",
        help="run folders, or their parents; or one file with translations (plain text, or output "
        "of fairseq-generate --remove-bpe); or, with --run, a checkpoint and a data folder",
    )  # fmt: skip
    parser.add_argument(
        "--reference", type=Path, metavar="FILE", help="raw reference text, one sentence per line"
    )
    group = parser.add_argument_group("a checkpoint that was not trained in a run")
    group.add_argument("--run", type=Path, metavar="FOLDER", help="folder to create for the run")
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="fact that tables will show (method=elected), or option of fairseq that changes the "
        "score (generation.beam=1, model.cache_bits=4); may be repeated",
    )  # fmt: skip
    options.add_cpu(group)
    options.add_user_dir(group)
    return parser


def main(argv: list[str]) -> int:
    parser = build_parser()
    args = parser.parse_intermixed_args(argv)
    if args.run:
        run = run_of_checkpoint(parser, args, [*PROG.split(), *argv])
        return score_runs([run])
    options.reject(parser, args, ("set", "cpu", "user_dir"), "needs a checkpoint and --run")
    for path in [*args.inputs, *filter(None, [args.reference])]:
        if not path.exists():
            raise UserError("file or folder not found", path)
    if any(path.is_dir() for path in args.inputs):
        if args.reference:
            parser.error(
                "argument --reference: has no effect on runs, whose references are in raw/ of the "
                "data folder"
            )
        from collab_lab.runs.run import find_runs

        runs = find_runs(path.resolve() for path in args.inputs)
        options.import_models(args)
        return score_runs(runs)
    if len(args.inputs) > 1:
        parser.error("give one file of translations, or runs; a checkpoint needs --run")
    if not args.reference:
        parser.error("argument --reference: needed with a file of translations")
    from collab_lab.metrics.translation_scores import score, summary
    from collab_lab.runs.translations import read_system

    system = read_system(args.inputs[0], args.reference)
    print(summary(score(system.hypotheses, system.references, system.of_tokens)))
    return 0


def run_of_checkpoint(
    parser: argparse.ArgumentParser, args: argparse.Namespace, command: list[str]
) -> Run:
    """Create a run from a checkpoint, and return it."""
    if len(args.inputs) != 2 or args.reference:
        parser.error("argument --run: goes with a checkpoint and a data folder")
    args.checkpoint, args.data = args.inputs
    chosen = {}
    for text in args.set:
        name, equals, value = text.partition("=")
        # A table would show ` beam` and `+beam` as beam.
        if not (re.fullmatch(r"[^\W\d][\w.-]*", name) and equals and value.strip()):
            parser.error(f"argument --set: {text!r} is not NAME=VALUE")
        if name in chosen:
            parser.error(f"argument --set: {name} is given twice")
        chosen[name] = value
    if args.user_dir:  # recorded, so that the run can be read again
        plugin = Path(args.user_dir)
        chosen.setdefault("common.user_dir", str(plugin.resolve() if plugin.is_dir() else plugin))
    options.import_models(args)
    from collab_lab.runs.checks import check_generation, check_test_set, check_valid_set
    from collab_lab.runs.from_checkpoint import configuration, make_run
    from collab_lab.runs.run import Run

    run, checkpoint = Run(args.run.resolve()), args.checkpoint.resolve()
    data = Path(os.pathsep.join(map(os.path.realpath, str(args.data).split(os.pathsep))))
    config = configuration(checkpoint, data, chosen, args.cpu)
    check_generation(config)
    if not run.score_file.exists():
        check_test_set(config)  # before there is a folder
        check_valid_set(config)
    with run.locked():
        make_run(run, checkpoint, config, chosen, command)
    return run


def score_runs(runs: list[Run]) -> int:
    """Score the runs that have no score yet, print all scores, and return the exit status."""
    from collab_lab.runs.checks import check_test_set
    from collab_lab.runs.scheduler import summary
    from collab_lab.runs.score import score_run

    failed = 0
    for run in runs:
        try:
            if not (record := run.record()):
                check_test_set(run.config())
                with run.locked():
                    record = run.record() or score_run(run)
        except (UserError, OSError) as error:
            failed = 1
            where = "" if isinstance(error, UserError) else f"{run.folder}: "
            print(f"{PROG}: error: {where}{error}", file=sys.stderr, flush=True)
            continue
        line = f"{run.name}: {summary(record)}"
        if record.task == "translation":
            signatures = f"{record.bleu_signature}  {record.chrf_signature}"
            line += f"  chrF {record.chrf:.2f}  {signatures}"
        print(line, flush=True)
    return failed
