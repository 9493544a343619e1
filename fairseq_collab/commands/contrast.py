"""``fairseq-collab contrast``: how often a model prefers the correct one of two translations."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from collab_common.command import positive
from collab_common.errors import UserError
from collab_common.files import write_atomic
from data_prep.segment import segmenter
from fairseq_collab.commands import options
from fairseq_collab.metrics.contrast import (
    BySentence,
    Contrast,
    Pairs,
    contrast,
    read_pairs,
    summary,
)
from fairseq_collab.metrics.model_bleu import check_translation
from fairseq_collab.runs.run import Run
from fairseq_collab.trained import opener
from fairseq_collab.trained.opener import Trained


def build_parser() -> ArgumentParser:
    parser = options.parser_of(
        "contrast",
        "Forced scoring of contrastive pairs: the share of pairs of which the model finds the "
        "correct translation more probable than the one with an error, for each phenomenon and by "
        "distance, with Wilson's 95 % intervals. Of a finished run it is kept in its score.json, "
        "for tables, and by sentence in contrast.json, for compare --seeds.",
        "example: fairseq-collab contrast runs/collab --pairs contrastive",
    )
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="the folder of a finished run, or a checkpoint"
    )
    parser.add_argument(
        "data", type=Path, nargs="?", metavar="DATA",
        help="the data folder, whose subwords are used (default: the run's own)",
    )  # fmt: skip
    add_pairs(parser, required=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_cpu(parser)
    options.add_user_dir(parser)
    return parser


def add_pairs(parser: ArgumentParser, required: bool = False) -> None:
    """Which pairs: for every command that scores them."""
    parser.add_argument(
        "--pairs", type=Path, required=required, metavar="DIR",
        help="contrastive pairs: a folder for each phenomenon, with src.en, tgt.correct.de and "
        "tgt.incorrect.de (or other languages), ordinary text, gzipped or not",
    )  # fmt: skip
    parser.add_argument(
        "--pairs-number", type=positive, metavar="N",
        help="at most so many pairs of each phenomenon, evenly spread (default: all)",
    )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    options.import_plugin(args)
    if args.model.is_dir():
        if args.data:
            parser.error("argument DATA: a run has its own; give it with a checkpoint")
        found, sentences = score_run(Run(args.model.resolve()), args)
    else:
        if not args.data:
            parser.error("argument DATA: needed with a checkpoint")
        trained = opener.load(args.model, args.data)
        found, sentences = measured(trained, args.data, pairs_for(trained, args), args)
    if args.json:
        content = {name: asdict(one) for name, one in found.items()}
        print(json.dumps({"contrast": content, "contrast_signature": sentences.signature}))
    else:
        print(f"{summary(found)}\n{sentences.signature}")
    return 0


def score_run(run: Run, args: Namespace) -> tuple[dict[str, Contrast], BySentence]:
    """Measure a finished run's model; accuracies are kept in ``score.json``, counts beside it."""
    with run.locked():
        record = run.score()
        if record is None:
            what = f"is not a finished run: {run.state()}"
            raise UserError(what, run.folder, "score it first (fairseq-collab score)")
        data = Path(run.config().task.data)
        trained = opener.load(run.average, data)
        found, sentences = measured(trained, data, pairs_for(trained, args), args)
        write_atomic(run.contrast_file, json.dumps(asdict(sentences)))  # thousands of short lists
        run.finish(replace(record, contrast=found, contrast_signature=sentences.signature))
    return found, sentences


def pairs_for(trained: Trained, args: Namespace) -> list[Pairs]:
    """The pairs that the options name, in the model's languages."""
    todo = "give a checkpoint of a translation model"
    check_translation(trained.task, trained.path, todo, "accuracy on contrastive pairs")
    cfg = trained.task.cfg
    return read_pairs(args.pairs, (cfg.source_lang, cfg.target_lang), args.pairs_number)


def measured(
    trained: Trained, data: Path, phenomena: Sequence[Pairs], args: Namespace
) -> tuple[dict[str, Contrast], BySentence]:
    """The model's accuracies, and its right pairs by sentence."""
    cfg = trained.task.cfg
    segment = {lang: segmenter(data, lang) for lang in (cfg.source_lang, cfg.target_lang)}
    model = trained.model.to(options.device(args))
    model.make_generation_fast_(need_attn=False)
    return contrast(model, trained.task, phenomena, segment)
