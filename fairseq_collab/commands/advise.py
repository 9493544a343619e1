"""``fairseq-collab advise``: find a smaller model that meets a cache or size target."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from collab_common import files
from collab_common.command import amount, positive
from fairseq_collab.advice.plan import MEANS, NAMES, PLACES_MEAN, parse
from fairseq_collab.commands import options

if TYPE_CHECKING:
    from fairseq_collab.advice.advisor import Advice, Advisor, Final

NUMBERS, PAGE, MODEL = "advice.json", "advice.md", "advised.pt"


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "advise",
        "Find a smaller model that meets a cache or size target at the lowest loss of BLEU, "
        "without training: tries to remove heads and to share keys and values, at many sizes. "
        "Rerun a killed command to resume it; another target in the same DIR reuses its "
        "measurements. The test set is not read.",
        "example: fairseq-collab advise average.pt data-bin --want cache=0.5 --out advice",
    )
    options.add_checkpoint(parser)
    options.add_data(parser)
    options.add_out(parser, "DIR", f"of {MODEL}, {PAGE} and {NUMBERS}")
    parser.add_argument(
        "--want", nargs="+", required=True, type=parse, metavar="COST=SHARE",
        help="cache=0.5, parameters=0.7 or multiply-adds=0.7: at most this share of the model's",
    )  # fmt: skip
    parser.add_argument(
        "--max-bleu-loss", type=amount, default=0.3, metavar="B",
        help="largest loss of BLEU on the validation set (default: 0.3)",
    )  # fmt: skip
    parser.add_argument("--subset", default="valid", help="validation set (default: valid)")
    parser.add_argument(
        "--sample", type=positive, default=256, metavar="N",
        help="validation sentences that single changes are measured on (default: 256)",
    )  # fmt: skip
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-lang", metavar="LANG", help=f"{side} language of a multilingual model"
        )
    options.add_cpu(parser)
    options.add_user_dir(parser)
    return parser


def lines(advice: Advice) -> Iterator[str]:
    """The answer, a table of the last candidates, and how to make each."""
    from fairseq_collab.results.render import grid

    best = advice.finals[0]
    asked = f"{' '.join(map(str, advice.wishes))}, at most {advice.max_bleu_loss:g} BLEU lost"
    if advice.answer:
        yield f"{asked}: {best.candidate.name}"
    else:
        yield f"{asked}: no candidate; {best.candidate.name} loses least"
    yield f"\n{MEANS[best.candidate.method]} ({PLACES_MEAN}).\n"
    yield grid(["candidate", "BLEU", "lost (95 %)", *NAMES.values()], map(row, advice.finals))
    yield f"\nThe given model has {advice.bleu:.2f} BLEU. Costs are shares of its costs."
    yield f"{advice.subset} chose the candidate: score it on other data."
    for one in advice.finals:
        yield f"\n{one.candidate.name}:\n\n    {one.command}"
    if advice.rejected:
        yield ""
    yield from (f"not tried: {name} ({why})" for name, why in advice.rejected.items())


def row(one: Final) -> list[str]:
    """A candidate's row of the table."""
    from fairseq_collab.results.render import num

    drop, low, high = (num(value, ".2f") for value in (one.drop, one.low, one.high))
    costs = [f"{one.ratios[what]:.2f}" for what in NAMES]
    return [one.candidate.name, f"{one.bleu:.2f}", f"{drop} ({low} to {high})", *costs]


def write(advice: Advice, advisor: Advisor, out: Path, made: dict[str, object]) -> None:
    """Write the page, the numbers, and the model if there is an answer."""
    from fairseq_collab.trained import opener

    answer = advice.answer
    finals = [{"name": one.candidate.name, **asdict(one)} for one in advice.finals]
    advisor.ledger.write(
        **made,
        wishes=list(map(str, advice.wishes)),
        max_bleu_loss=advice.max_bleu_loss,
        bleu=advice.bleu,
        finals=finals,
        answer=answer and answer.candidate.name,
    )
    (out / MODEL).unlink(missing_ok=True)  # of another wish
    if answer:
        found = advisor.make(answer.candidate)
        opener.save(found.with_model(found.model.cpu()), out / MODEL)
    files.write_atomic(out / PAGE, "\n".join([*lines(advice), ""]))


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit status is 1 if all candidates lose more than --max-bleu-loss."""
    args = build_parser().parse_args(argv)
    options.import_models(args)
    from fairseq_collab.advice.advisor import Advisor
    from fairseq_collab.advice.measure import Ledger
    from fairseq_collab.metrics.translate import check_translation
    from fairseq_collab.trained import opener

    languages = {"source_lang": args.source_lang, "target_lang": args.target_lang}
    chosen = {name: language for name, language in languages.items() if language}
    trained = opener.load(args.checkpoint, args.data, **chosen)
    opener.check_transformer(trained.model, trained.path)
    opener.check_direction(trained.cfg.task, trained.path, "choose --source-lang and --target-lang")
    trained.model.to(options.device(args))
    check_translation(trained.task, trained.path, "give a model that translates")
    settings = {
        "checkpoint_sha256": files.sha256(args.checkpoint),
        "data": args.data.resolve().name,
        **{name: getattr(args, name) for name in ("subset", "sample")},
        **chosen,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    with files.locked(args.out / "lock"):
        ledger = Ledger(args.out / NUMBERS, settings)
        advisor = Advisor(trained, ledger, args.subset, args.sample)
        advice = advisor.run(args.want, args.max_bleu_loss)
        write(advice, advisor, args.out, options.made("advise", argv, args.cpu))
    print("\n".join(lines(advice)))
    if advice.answer:
        print(f"\n{args.out / MODEL}: the model")
    return 0 if advice.answer else 1
