"""``fairseq-collab shrink``: a smaller model that loses little, by one plan for every cut."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab_common.command import check_folder_of, positive, share
from collab_common.errors import UserError
from collab_common.files import write_atomic
from collab_lab.cli import options

if TYPE_CHECKING:
    from collab_lab.clock.engines import Work
    from collab_lab.clock.parts import PartTimes
    from collab_lab.shrinking.plan import Plan
    from collab_lab.trained.checkpoint import Trained


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "shrink",
        "Make a trained transformer smaller at the lowest predicted loss, without training: heads, "
        "feed-forward units, widths and bits of the KV cache have one price in bits per target "
        "token. The cheapest plan that meets all targets is applied, and all blocks are refitted. "
        "Without --out, print plans of several sizes.",
        "example: fairseq-collab shrink average.pt data-bin --cache 0.125 --parameters 0.7 "
        "--out small.pt",
    )
    options.add_model(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="checkpoint to write")
    options.add_force(parser)
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="without --out: draw prices of plans, and of "
        "heads, units, bits alone (.svg, .pdf)",
    )  # fmt: skip
    targets = parser.add_argument_group("targets, of which all must hold")
    targets.add_argument(
        "--cache", type=share, metavar="SHARE",
        help="share to leave of the bytes of a 16-bit KV cache",
    )  # fmt: skip
    targets.add_argument(
        "--parameters", type=share, metavar="SHARE",
        help="share to leave of the parameters of all layers, without embeddings",
    )  # fmt: skip
    targets.add_argument("--heads", type=share, metavar="SHARE", help="share of heads to leave")
    targets.add_argument(
        "--time", type=share, metavar="SHARE",
        help="share to leave of the seconds of a translation, measured on this machine in two "
        "minutes and kept",
    )  # fmt: skip
    targets.add_argument(
        "--lose", type=float, metavar="BITS", help="the smallest model that is measured to lose "
        "at most so much on the validation set",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="CUT,...", help="what may be cut: heads, units, cache (default: what "
        "the targets need)",
    )  # fmt: skip
    parser.add_argument(
        "--kinds", metavar="KIND,...", help="heads for a smaller cache, of which the cheapest is "
        "taken: latent, headsize (as they are, rounded), grouped-query, collab (a shared key); "
        "default: latent,headsize; with --for ct2: grouped-query",
    )  # fmt: skip
    parser.add_argument(
        "--cache-bits", metavar="{auto,none,8,4}", help="bits of a number in a smaller cache: 8, "
        "4, none for no rounding, auto (default) for the cheapest",
    )  # fmt: skip
    parser.add_argument(
        "--for", dest="engine", choices=("fairseq", "ct2", "onnx"), default="fairseq",
        help="engine that runs the model; ONNX Runtime (onnx) takes every plan, as fairseq does; "
        "ct2: what CTranslate2 keeps: equally many heads on each "
        "side, feed-forward widths in multiples of 64, grouped-query heads for --cache",
    )  # fmt: skip
    clock = parser.add_argument_group("what --time is measured in, with beam 5")
    clock.add_argument(
        "--engine", dest="timed",
        choices=("fairseq", "ct2-int8", "ct2-float32", "onnx-int8", "onnx-float32"),
        help="fairseq with this plug-in (default), or CTranslate2 or ONNX Runtime on a CPU; the "
        "model is then for this engine",
    )  # fmt: skip
    clock.add_argument(
        "--batch", type=positive, default=1, metavar="N",
        help="sentences that are translated together (default: 1)",
    )  # fmt: skip
    clock.add_argument(
        "--length", type=positive, default=30, metavar="N",
        help="tokens of a source and of a translation (default: 30)",
    )  # fmt: skip
    options.add_pass(parser, check="measure the validation loss, and with --time the seconds, "
                     "before and after")  # fmt: skip
    options.add_prices(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_intermixed_args(argv)
    targets = ("cache", "parameters", "heads", "time", "lose")
    if args.out is None:
        of_file = () if args.figure is not None else ("force",)
        ours = (*targets, "only", "cache_bits", "engine", *of_file)
        options.reject(parser, args, ours, "needs --out")
    if args.time is None:
        options.reject(parser, args, ("batch", "length"), "needs --time")
        if args.timed is not None:
            parser.error("--engine needs --time")
    elif args.engine not in ("fairseq", program_of(args.timed or "fairseq")):
        parser.error(
            f"--time with --for {args.engine} needs --engine {args.engine}-int8 or "
            f"{args.engine}-float32"
        )
    if args.out is None:
        return front(args)
    options.reject(parser, args, ("figure",), "goes without --out")
    options.check_model_out(args)
    model = source(args)
    from tabulate import tabulate

    from collab_lab.shrinking.plan import KINDS
    from collab_lab.shrinking.shrunk import chosen, shrink
    from collab_lab.trained.checkpoint import samples
    from collab_lab.trained.configuration import fine_tuning, write_configuration

    validation = options.validation(args, model)
    if args.lose is not None:  # a set that is missing fails before the pass
        samples(model, "valid")
    only = None if args.only is None else args.only.split(",")
    # What is wrong with options fails before anything is timed or read.
    engine = program_of(args.timed) if args.timed else args.engine
    kinds = kinds_of(args).get("kinds")
    chosen(shares_of(args), args.lose, only, kinds, args.cache_bits, engine)
    times = times_of(args, model, only)
    result = shrink(
        model,
        **{name: getattr(args, name) for name in targets},
        only=only,
        **kinds_of(args),
        cache_bits=args.cache_bits,
        engine=args.engine,
        times=times,
        calibration=options.calibration(args, model, cuts_of(args, only)),
    )
    checked = [*validation(result.model, result.plan.price)]
    if times is not None and args.check:
        checked.append(seconds_line(model, result.model, times.work, result.plan.time))
    smaller = result.model
    smaller.model.cpu()
    smaller.save(args.out)
    write_configuration(smaller, args.out)
    kind = KINDS[result.plan.kind]
    titles = ["site", "stays", kind.size_name if kind else "", "cache bits"]
    print(tabulate(result.plan.table(model), titles, "plain"))
    checked.insert(0, size_line(model, result.model))
    print(*summary(result.plan, result.rise, result.shares), *checked, sep="\n")
    print(f"{args.out}, to be fine-tuned:", fine_tuning(smaller, args.out), sep="\n")
    return 0


def program_of(engine: str) -> str:
    """The program of an engine that is timed, as ``--for`` names it."""
    return engine.partition("-")[0]


def source(args: argparse.Namespace) -> Trained:
    """The model with heads that plans are of."""
    model = options.model(args)
    from collab_lab.shrinking.shrunk import source_of

    return source_of(model)


def times_of(
    args: argparse.Namespace, model: Trained, only: Sequence[str] | None
) -> PartTimes | None:
    """Measured times of the model's parts, if they are a target."""
    if args.time is None:
        return None
    from collab_lab import time_parts

    how = {"batch": args.batch, "length": args.length, "cuts": cuts_of(args, only)}
    return time_parts(model, args.timed or "fairseq", **how, **kinds_of(args))


def cuts_of(args: argparse.Namespace, only: Sequence[str] | None) -> tuple[str, ...]:
    """What may be cut."""
    from collab_lab.shrinking.shrunk import chosen_cuts

    return chosen_cuts(shares_of(args), args.lose, only)


def shares_of(args: argparse.Namespace) -> dict[str, float]:
    """Targets that are shares."""
    names = ("cache", "parameters", "heads", "time")
    return {name: share for name in names if (share := getattr(args, name)) is not None}


def size_line(before: Trained, after: Trained) -> str:
    """Parameters of the whole model, embeddings included."""
    from collab_lab.metrics.cost import used_parameters

    old, new = (sum(p.numel() for p in used_parameters(of.model)) for of in (before, after))
    return f"whole model, with embeddings: {new:,} of {old:,} parameters ({new / old:.1%})"


def seconds_line(before: Trained, after: Trained, work: Work, predicted: float | None) -> str:
    """The measured share of the given model's seconds, next to the predicted one."""
    from collab_lab.clock.parts import in_turns
    from collab_lab.metrics.turns import times_as_fast

    turns = in_turns(before, after, work)
    ratio = times_as_fast(turns, "before", "after")
    ends = "" if ratio.low is None else f" ({ratio.low:.1%} to {ratio.high:.1%})"
    return (
        f"seconds: {ratio.mean:.1%}{ends} of the given model's in {len(turns)} turns, "
        f"predicted {predicted:.1%}"
    )


def kinds_of(args: argparse.Namespace) -> dict[str, Any]:
    """The argument ``kinds``, if it is given."""
    return {} if args.kinds is None else {"kinds": args.kinds.split(",")}


def summary(plan: Plan, rise: float, shares: dict[str, float]) -> list[str]:
    """Shares that are left; the predicted loss, and the one on the calibration sentences."""
    parts = ", ".join(f"{name} {price:.4f}" for name, price in plan.prices.items() if price)
    left = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return [
        f"left: {left}",
        f"price: {plan.price:.4f} bits per target token ({parts or 'nothing is lost'}); "
        f"measured on the calibration sentences: {rise:+.4f}",
    ]


def front(args: argparse.Namespace) -> int:
    """Plans of several sizes: costs and prices, with ``--check`` measured losses, too."""
    from tabulate import tabulate

    from collab_lab import validation_loss
    from collab_lab.shrinking.plan import CUTS, propose
    from collab_lab.shrinking.shrunk import FRONT, How, chosen_cuts, chosen_kinds, made, rivals
    from collab_lab.trained.checkpoint import samples

    if args.figure is not None:
        check_figure(args)
    kinds = chosen_kinds(kinds_of(args).get("kinds"), CUTS, "fairseq")
    model = source(args)
    valid = samples(model, "valid") if args.check else []
    before = validation_loss(model, valid) if valid else 0.0
    found = options.calibration(args, model)
    rows = []
    for shares in FRONT:
        row = [shares.get("cache"), shares.get("parameters")]
        how = How(chosen_cuts(shares, None, None), kinds)
        try:
            if valid:
                result = made(model, found, shares, how)
                plan, measured = result.plan, validation_loss(result.model, valid) - before
            else:
                shared = {**how._asdict(), "known": found.known}
                plan = propose(model, found.attentions, found.units, shares, **shared)
                measured = None
        except UserError as error:
            print(f"{shares}: not possible ({error.todo or error.problem})")
            continue
        rows.append([*row, plan.kind if "cache" in shares else None, plan.price, measured])
    titles = ["cache", "layers' parameters", "cache by", "price (bits)", "measured (bits)"]
    print(tabulate(rows, titles, "plain", floatfmt=("g", "g", "", ".4f", ".4f")))
    if args.figure is not None:
        draw_rivals(args, rivals(model, found))
    return 0


def check_figure(args: argparse.Namespace) -> None:
    """Raise UserError unless ``--figure`` can be written."""
    if args.figure.suffix not in (".svg", ".pdf"):
        raise UserError("is no name of a figure", args.figure, "give one with .svg or .pdf")
    check_folder_of(args.figure)
    options.check_new(args, args.figure)


def draw_rivals(args: argparse.Namespace, prices: Mapping[str, Any]) -> None:
    """Write the figure: a panel for parameters, and one for the cache."""
    from collab_lab.results.figure import draw, saved

    titles = {"parameters": "parameters of the layers", "cache": "bytes of the KV cache"}
    panels = {titles[name]: series for name, series in prices.items()}
    title = f"What cuts cost: {args.checkpoint}"
    drawn = draw(panels, "share left", "price (bits)", title, log=False)
    write_atomic(args.figure, saved(drawn, args.figure.suffix[1:]))
    print(args.figure)
