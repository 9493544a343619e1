"""``fairseq-collab advise``: find the smaller model that loses least."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collab_common.command import amount, ranged
from collab_common.files import write_atomic
from collab_lab.advice import RESOURCES as COSTS
from collab_lab.cli import options

if TYPE_CHECKING:
    from collab_lab.advice.advisor import Advice, Final


def parse(text: str) -> tuple[str, float]:
    """A target such as ``cache=0.5``, for argparse."""
    resource, _, number = text.partition("=")
    if resource not in COSTS:
        problem = f"{text!r} names none of {', '.join(COSTS)}, as in cache=0.5"
        raise argparse.ArgumentTypeError(problem)
    return resource, ranged(float, lambda x: 0 < x < 1, "above 0 and below 1")(number)


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "advise",
        "Find the smaller model with the lowest loss, without training. Candidates have latent "
        "heads, shared keys, grouped-query heads or fewer heads. One pass predicts "
        "their losses; the best three are built and measured on the validation set. The test set "
        "is not read.",
        "example: fairseq-collab advise average.pt data-bin --want cache=0.25 --out advice",
    )
    options.add_model(parser, data=None)
    options.add_out(parser, "DIR", "folder for the model and a page, named after the target")
    parser.add_argument(
        "--want", nargs="+", required=True, type=parse, metavar="COST=SHARE",
        help="largest share of the model's cost that may remain: cache=0.5 or parameters=0.8; "
        "several targets must all hold",
    )  # fmt: skip
    parser.add_argument(
        "--max-loss", type=amount, default=0.05, metavar="BITS",
        help="largest increase of the validation loss, in bits per target token (default: 0.05)",
    )  # fmt: skip
    options.add_pass(parser)
    return parser


def command(final: Final, args: argparse.Namespace, stem: Path) -> str:
    """The command that makes a candidate."""
    out = stem.with_name(f"{stem.name}_{re.sub(r'[^a-z0-9]+', '-', final.name)}.pt")
    name, chosen = final.command
    words = [name, str(args.checkpoint), str(args.data), *chosen]
    for option, usual in (("subset", "train"), ("sentences", 1000), ("user_dir", None)):
        if (value := getattr(args, option)) != usual:
            words += [f"--{option.replace('_', '-')}", str(value)]
    return shlex.join(["fairseq-collab", *words, *["--cpu"] * args.cpu, "--out", str(out)])


def lines(advice: Advice, args: argparse.Namespace, stem: Path) -> Iterator[str]:
    """The answer, a table of the measured candidates, and how to make each."""
    from collab_lab.conversion.converter import spelled
    from collab_lab.results.render import grid

    best = min(advice.finals, key=lambda final: final.lost.mean)
    asked = f"{spelled(dict(args.want))}, at most {args.max_loss:g} bits lost"
    answer = advice.answer
    yield f"{asked}: {answer.name if answer else f'no candidate; {best.name} loses least'}\n"
    measured = ("on the calibration text", "measured loss (95%)")
    titles = ["candidate", "predicted loss", *measured, *COSTS]
    yield grid(titles, map(row, advice.finals))
    read, valid = (f"{number:,}" for number in advice.sentences)
    yield "\nLosses are increases in bits per target token, without training; the given model has"
    yield f"{advice.bits:.4f}. Costs are shares of the given model's, its cache in 16-bit numbers."
    yield f"Predicted on {read} sentences of {args.subset}, measured on {valid} of valid."
    yield f"The calibration text is what was predicted on, {args.subset}."
    losses = ((final.name, final.price, final.lost.mean) for final in advice.finals)
    yield from options.loss_warnings(args, losses)
    if answer and answer is not best:
        yield f"{best.name} loses no less than {answer.name} by the interval, and costs more."
    yield "valid chose the candidate: score it on other data (fairseq-collab score, compare)."
    for final in advice.finals:
        yield f"\n{final.name}:\n\n    {command(final, args, stem)}"
    if advice.rejected:
        yield ""
    yield from (f"no {name}: {reason}" for name, reason in advice.rejected.items())
    if answer:
        yield f"\n{stem}.pt: {answer.name}"


def row(final: Final) -> list[str]:
    """A candidate's row of the table."""
    from collab_lab.results.render import interval, num

    measured = interval(final.lost, "+.4f")
    unclear = "" if final.lost.significant or final.lost.low is None else ", can't tell"
    shares = [f"{final.shares[name]:.2f}" for name in COSTS]
    losses = [num(loss, "+.4f") for loss in (final.price, final.rise)]
    return [final.name, *losses, measured + unclear, *shares]


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit status is 1 if all candidates lose more than --max-loss."""
    args = build_parser().parse_args(argv)
    stem = args.out / "_".join(f"{resource}-{share:g}" for resource, share in args.want)
    model, page = (stem.with_name(f"{stem.name}.{kind}") for kind in ("pt", "md"))
    options.check_new(args, model, page)
    trained = options.model(args)
    from collab_lab import advise

    advice = advise(trained, dict(args.want), args.max_loss, args.subset, args.sentences)
    text = "\n".join([*lines(advice, args, stem), ""])
    args.out.mkdir(parents=True, exist_ok=True)
    model.unlink(missing_ok=True)  # of other settings, with --force
    if advice.answer:
        advice.answer.model.model.cpu()
        advice.answer.model.save(model)
    write_atomic(page, text)
    print(text, end="")
    return 0 if advice.answer else 1
