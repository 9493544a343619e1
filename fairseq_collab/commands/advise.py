"""``fairseq-collab advise``: which smaller model of a trained one has what is wished for?"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collab_common import files
from collab_common.command import not_negative, positive
from collab_common.errors import UserError
from fairseq_collab.advice import page
from fairseq_collab.advice.ledger import Ledger
from fairseq_collab.advice.search import Advisor
from fairseq_collab.advice.wishes import SPEED, Advice, Wanted, Wish, parse
from fairseq_collab.commands import export, options
from fairseq_collab.commands.export import FORMATS, check_packages
from fairseq_collab.metrics.translate import check_translation
from fairseq_collab.trained import opener
from fairseq_collab.trained.opener import Trained

MODEL = "advised.pt"


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "advise",
        "Tries what can be done to a trained model without training it: heads removed, or sharing "
        "keys and values, feed-forward layers narrowed, at many sizes and places. Measures each "
        "on the validation set, and names the one that has the wishes and loses least, with its "
        "interval. Given again after an interruption, it goes on. The test set is not touched.",
        "example: fairseq-collab advise average.pt --data data-bin --want cache=0.5 --out advice",
    )
    options.add_checkpoint(parser, options.TRANSFORMER)
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder that fairseq-preprocess has written"
    )
    options.add_output(parser, "--out", "DIR", f"of {MODEL}, {page.NAME} and what was measured")
    parser.add_argument(
        "--after", type=Path, metavar="DIR",
        help="the --out of another wish for the same model, with the same --minutes, --subset and "
        "--seed: what it has measured of single places is not measured again",
    )  # fmt: skip
    parser.add_argument(
        "--want", nargs="+", default=[], type=options.typed(parse), metavar="COST=X",
        help="cache=0.5, parameters=0.7 or multiply-adds=0.7: at most this share of the model's; "
        "speed=1.5: at least as many times as fast (default: none; the cheapest is named)",
    )  # fmt: skip
    parser.add_argument(
        "--max-loss", type=options.amount, default=0.3, metavar="B",
        help="BLEU that may be lost; of a language model, perplexity (default: 0.3)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=positive, default=15, metavar="N",
        help="what the search takes on two cores, the last candidates' translations of the whole "
        "set not counted; samples are as large as that allows (default: 15)",
    )  # fmt: skip
    parser.add_argument(
        "--tune", type=not_negative, default=0, metavar="N",
        help="let the last candidates learn from the model for so many updates (default: 0)",
    )  # fmt: skip
    parser.add_argument("--subset", default="valid", help="of the data folder (default: valid)")
    parser.add_argument("--seed", type=positive, default=1, help="of samples (default: 1)")
    parser.add_argument(
        "--export", choices=FORMATS, help=f"write {MODEL} in this form, too, where that is exact"
    )
    options.add_cpu(parser)
    options.add_user_dir(parser)
    return parser


def settings(args: Namespace, wanted: Wanted) -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "checkpoint_sha256": files.sha256(args.checkpoint),
        "data": args.data.resolve().name,
        **asdict(wanted),
        "wishes": list(map(str, wanted.wishes)),
    }


def check(trained: Trained, wishes: Sequence[Wish]) -> None:
    """Only what translates or is a language model has a quality here."""
    if not trained.is_language_model:
        todo = "give a model that translates, or a language model"
        check_translation(trained.task, trained.path, todo)
    elif any(one.what == SPEED for one in wishes):
        what, todo = "speed is measured of models that translate", "wish for multiply-adds"
        raise UserError(what, "--want speed", todo)


def write(advice: Advice, advisor: Advisor, args: Namespace, made: dict[str, Any]) -> Path | None:
    """Write the page, the answer beside what was measured, and its model where there is one."""
    finals = [{"name": one.candidate.name, **asdict(one)} for one in advice.finals]
    answer = advice.answer and advice.answer.candidate.name
    advisor.ledger.write(quality=advice.quality, finals=finals, answer=answer)
    files.write_content(args.out / page.NAME, page.page(advice, made).encode())
    if advice.answer is None:
        return None
    path: Path = args.out / MODEL
    made_model = advisor.judge.make(advice.answer.candidate)
    opener.save(made_model.with_model(made_model.model.cpu()), path)
    return path


def write_in_form(path: Path, args: Namespace) -> None:
    """Write the model as ``--export`` asks, or say why it cannot be."""
    try:
        export.export(path, args.data, args.export, args.out / f"advised.{args.export}")
    except UserError as error:
        print(f"not exported: {error}")


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status: 1 where no candidate has what was asked for."""
    args = build_parser().parse_args(argv)
    options.import_plugin(args)
    if args.export:
        check_packages(args.export)
    trained = opener.load(args.checkpoint, args.data)
    trained.model.to(options.device(args))
    check(trained, args.want)
    files.make_folder(args.out)
    with files.locked(args.out / "lock"):
        made = options.made("advise", argv, args.cpu)
        asked = (args.max_loss, args.minutes, args.tune, args.seed, args.subset)
        wanted = Wanted(tuple(args.want), *asked)
        ledger = Ledger(args.out, settings(args, wanted), made, args.after)
        advisor = Advisor(trained, wanted, ledger, args.out / "tuned")
        advice = advisor.run()
        path = write(advice, advisor, args, {**made, "minutes": f"{ledger.seconds / 60:.1f}"})
        print(page.lines(advice, path))
        if path and args.export:
            write_in_form(path, args)
    return 0 if advice.answer else 1
