"""``fairseq-collab shrink``: make a model smaller by one plan for all cuts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab_common.command import check_folder_of, positive, share
from collab_common.errors import UserError
from collab_common.files import write_atomic
from collab_lab.cli import options
from collab_lab.shrinking.engine import ENGINES, TIMED_IN, engine_of

if TYPE_CHECKING:
    from collab_lab.clock.engines import Work
    from collab_lab.clock.parts import PartTimes
    from collab_lab.shrinking.cut import Cut
    from collab_lab.shrinking.plan import Plan
    from collab_lab.trained.checkpoint import Trained

#: Share of the seconds by which a machine may drift.
DRIFT = 0.05
#: The engine that trains models.
OURS = "fairseq"


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "shrink",
        "Make a trained transformer smaller at the lowest predicted loss, without training. Heads, "
        "feed-forward units, and widths and bits of the KV cache all have a price: the expected "
        "increase of the loss in bits per target token. Apply the cheapest plan that meets all "
        "targets, then refit all blocks. Without --out, print plans of several sizes.",
        "example: fairseq-collab shrink average.pt data-bin --cache 0.125 --parameters 0.7 "
        "--out small.pt",
    )
    options.add_model(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="checkpoint to write")
    options.add_force(parser)
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="without --out: draw the prices of plans, "
        "and of plans that cut only heads, only units or only bits (.svg, .pdf)",
    )  # fmt: skip
    targets = parser.add_argument_group("targets (all of them are met)")
    targets.add_argument(
        "--cache", type=share, metavar="SHARE",
        help="share of the KV cache's bytes to keep, from 0 to 1; 1 is a standard cache in 16-bit "
        "numbers",
    )  # fmt: skip
    targets.add_argument(
        "--parameters", type=share, metavar="SHARE",
        help="share of the parameters of all layers to keep, from 0 to 1, without embeddings",
    )  # fmt: skip
    targets.add_argument(
        "--heads", type=share, metavar="SHARE", help="share of the heads to keep, from 0 to 1"
    )
    targets.add_argument(
        "--time", type=share, metavar="SHARE",
        help="share of the seconds per translation to keep, as predicted; the first use on a "
        "machine takes about two minutes to measure them",
    )  # fmt: skip
    targets.add_argument(
        "--lose", type=float, metavar="BITS", help="largest accepted rise of the validation loss, "
        "in bits per target token (0.1 bits were about 1 BLEU in our models): measure several "
        "models, and write the smallest within this limit",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="CUT,...", help="parts that may be cut: heads, units (of feed-forward "
        "blocks), cache (default: what the targets need)",
    )  # fmt: skip
    parser.add_argument(
        "--kinds", metavar="KIND,...", help="kinds of heads to try for a smaller cache; the "
        "cheapest is used: latent, unchanged (the heads as they are, with a rounded cache), "
        "grouped-query, collab (shared keys); default: latent,unchanged; with --for ct2: "
        "grouped-query",
    )  # fmt: skip
    parser.add_argument(
        "--cache-bits", metavar="{auto,none,8,4}", help="bits per number in a smaller cache: 8, "
        "4, none (no rounding), or auto (default, the cheapest)",
    )  # fmt: skip
    parser.add_argument(
        "--for", dest="engine", choices=tuple(ENGINES), default=OURS,
        help="engine that will run the model: fairseq with this plug-in (default) and ONNX Runtime "
        "(onnx) support all cuts; CTranslate2 (ct2) needs equally many heads in all layers of the "
        "encoder and of the decoder, feed-forward widths in multiples of 64, and grouped-query "
        "heads for --cache",
    )  # fmt: skip
    clock = parser.add_argument_group("how --time is measured (beam 5)")
    clock.add_argument(
        "--time-in",
        choices=tuple(TIMED_IN),
        help="engine in which --time is measured: fairseq with this plug-in (default), or "
        "CTranslate2 or ONNX Runtime on a CPU",
    )  # fmt: skip
    clock.add_argument(
        "--batch", type=positive, default=1, metavar="N",
        help="number of sentences to translate together (default: 1)",
    )  # fmt: skip
    clock.add_argument(
        "--length", type=positive, default=30, metavar="N",
        help="number of tokens of each source and each translation (default: 30)",
    )  # fmt: skip
    parser.add_argument(
        "--with", dest="own", type=Path, metavar="FILE", help="Python file with cuts of your own, "
        "which replace this project's cuts of the same part: see docs/own_cuts.md",
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
        if args.time_in is not None:
            parser.error("--time-in needs --time")
    elif args.engine not in (OURS, engine_of(args.time_in or OURS).name):
        possible = " or ".join(ENGINES[args.engine].timed_in)
        parser.error(f"--time with --for {args.engine} needs --time-in {possible}")
    if args.out is None:
        return print_front(args)
    options.reject(parser, args, ("figure",), "has no effect with --out")
    options.check_model_out(args)
    original = options.model(args)
    from tabulate import tabulate

    from collab_lab.shrinking.cuttable import cuttable
    from collab_lab.shrinking.shrink import allowed_cuts, shrink
    from collab_lab.trained.fine_tuning import fine_tuning_lines, write_configuration
    from collab_lab.trained.sentences import samples

    model = cuttable(original)
    validation = options.validation(args, model)
    if args.lose is not None:  # a set that is missing fails before the pass
        samples(model, "valid")
    only = None if args.only is None else args.only.split(",")
    # What is wrong with options fails before anything is timed or read.
    engine = engine_of(args.time_in).name if args.time_in else args.engine
    kinds = kinds_of(args).get("kinds")
    own = own_cuts(args)
    if any(cut.simulated for cut in own):
        problem = "defines a cut that is simulated: its models cannot be saved"
        raise UserError(problem, args.own, "leave --out and targets out, and give --check")
    allowed_cuts(shares_of(args), args.lose, only, kinds, args.cache_bits, engine, own)
    times = times_of(args, model, only)
    result = shrink(
        model,
        **{name: getattr(args, name) for name in targets},
        only=only,
        **kinds_of(args),
        cache_bits=args.cache_bits,
        engine=args.engine,
        times=times,
        with_cuts=own,
        evidence=options.evidence(args, model, parts_of(args, only)),
    )
    checked = [*validation(result.model, result.plan.price)]
    if times is not None and args.check:
        checked.append(seconds_line(model, result.model, times.work, result.plan.time, args.time))
    smaller = result.model
    smaller.model.cpu()
    smaller.save(args.out)
    write_configuration(smaller, args.out)
    titles = ["site", "stays", result.plan.size_name, "cache bits"]
    print(tabulate(result.plan.table(), titles, "plain"))
    checked.insert(0, size_line(model, result.model))
    if result.lost is not None:
        checked.insert(0, lost_line(result.lost, args.lose))
    asked = shares_of(args)
    print(*summary(result.plan, result.rise, result.shares, asked), *checked, sep="\n")
    if model.shrunk is not None:
        print(f"of the model that was shrunk first: {smaller.shrunk}")
    print(*fine_tuning_lines(original, smaller, args.out), sep="\n")
    return 0


def times_of(
    args: argparse.Namespace, model: Trained, only: Sequence[str] | None
) -> PartTimes | None:
    """Measure the times of the model's parts, if time is a target."""
    if args.time is None:
        return None
    from collab_lab import time_parts

    how = {"batch": args.batch, "length": args.length, "parts": parts_of(args, only)}
    return time_parts(model, args.time_in or OURS, **how, **kinds_of(args))


def parts_of(args: argparse.Namespace, only: Sequence[str] | None) -> tuple[str, ...]:
    """The parts that may be cut."""
    from collab_lab.shrinking.shrink import chosen_parts

    return chosen_parts(shares_of(args), args.lose, only)


def shares_of(args: argparse.Namespace) -> dict[str, float]:
    """The targets that are shares."""
    names = ("cache", "parameters", "heads", "time")
    return {name: share for name in names if (share := getattr(args, name)) is not None}


def size_line(before: Trained, after: Trained) -> str:
    """A line with the parameters of the whole model before and after, including embeddings."""
    from collab_lab.metrics.cost import used_parameters

    old, new = (sum(p.numel() for p in used_parameters(of.model)) for of in (before, after))
    return f"whole model, with embeddings: {new:,} of {old:,} parameters ({new / old:.1%})"


def seconds_line(
    before: Trained, after: Trained, work: Work, predicted: float | None, asked: float
) -> str:
    """A line with the measured share of the given model's seconds, next to the predicted one.

    Raises:
        UserError: the share is clearly above the target ``asked``.
    """
    from collab_lab.clock.parts import in_turns
    from collab_lab.clock.turns import times_as_fast

    turns = in_turns(before, after, work)
    ratio = times_as_fast(turns, "before", "after")
    ends = "" if ratio.low is None else f" ({ratio.low:.1%} to {ratio.high:.1%})"
    line = (
        f"seconds: {ratio.mean:.1%}{ends} of the given model's in {len(turns)} turns, "
        f"predicted {predicted:.1%}"
    )
    if ratio.low is not None and ratio.low > asked + DRIFT:
        todo = "nothing is written: ask for fewer seconds, on a machine that does nothing else"
        raise UserError(f"{line}, and {asked:.1%} were asked for", before.path, todo)
    return line


def own_cuts(args: argparse.Namespace) -> tuple[Cut, ...]:
    """The cuts of ``--with``."""
    from collab_lab.shrinking.own_cuts import cuts_in

    return () if args.own is None else cuts_in(args.own)


def kinds_of(args: argparse.Namespace) -> dict[str, Any]:
    """The kinds of heads in ``--kinds``, if it is given."""
    return {} if args.kinds is None else {"kinds": args.kinds.split(",")}


def summary(
    plan: Plan, rise: float, shares: Mapping[str, float], asked: Mapping[str, float]
) -> list[str]:
    """Lines with the shares that are left, the predicted loss, and the calibration loss.

    Args:
        asked: the targets that are shares.
    """
    parts = ", ".join(f"{name} {price:.4f}" for name, price in plan.prices.items() if price)
    left = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return [
        f"left: {left}",
        *(
            f"{'fewer' if name == 'heads' else 'less'} {name} than the {share:.1%} that were asked "
            "for: no plan with more is cheaper"
            for name, share in asked.items()
            if shares[name] < share - 0.005
        ),
        *(
            f"more {name} than before: new heads need them; --{name} 1 forbids it"
            for name, share in shares.items()
            if share > 1.0005
        ),
        f"price: {plan.price:.4f} bits per target token ({parts or 'nothing is lost'}); "
        f"measured on the calibration sentences: {rise:+.4f}",
    ]


def lost_line(lost: float, allowed: float) -> str:
    """A line with the loss that ``--lose`` limits, which is on the whole validation set."""
    return (
        f"loss on the whole validation set, which --lose limits to {allowed:g}: "
        f"{lost:+.4f} bits per target token"
    )


def print_front(args: argparse.Namespace) -> int:
    """Print plans of several sizes with their prices; with ``--check`` also measured losses."""
    from tabulate import tabulate

    from collab_lab.shrinking.cuttable import cuttable
    from collab_lab.shrinking.front import front, series
    from collab_lab.shrinking.planner import spelled
    from collab_lab.shrinking.shape import PARTS
    from collab_lab.shrinking.shrink import check_own, chosen_kinds
    from collab_lab.trained.sentences import samples

    if args.figure is not None:
        check_figure(args)
    own = own_cuts(args)
    check_own(own, PARTS, OURS)
    kinds = chosen_kinds(kinds_of(args).get("kinds"), PARTS, OURS, own)
    model = cuttable(options.model(args))
    valid = samples(model, "valid") if args.check else []
    evidence = options.evidence(args, model)
    rows = []
    for shares, plan, lost, reason in front(evidence, kinds, own, valid):
        if plan is None:
            print(f"{spelled(shares)}: not possible ({reason})")
            continue
        kind = plan.kind if "cache" in shares else None
        rows.append([shares.get("cache"), shares.get("parameters"), kind, plan.price, lost])
    titles = ["cache", "layers' parameters", "cache by", "price (bits)", "measured (bits)"]
    print(tabulate(rows, titles, "plain", floatfmt=("g", "g", "", ".4f", ".4f")))
    if args.figure is not None:
        draw_series(args, series(evidence, kinds, own))
    return 0


def check_figure(args: argparse.Namespace) -> None:
    """Raise UserError unless ``--figure`` can be written."""
    if args.figure.suffix not in (".svg", ".pdf"):
        raise UserError("the name of a figure must end in .svg or .pdf", args.figure)
    check_folder_of(args.figure, "--figure")
    options.check_new(args, args.figure, option="--figure")


def draw_series(args: argparse.Namespace, prices: Mapping[str, Any]) -> None:
    """Draw the figure of ``--figure``: a panel for parameters, and one for the cache."""
    from collab_lab.results.figure import draw, saved

    titles = {"parameters": "parameters of the layers", "cache": "bytes of the KV cache"}
    panels = {titles[name]: series for name, series in prices.items()}
    title = f"What cuts cost: {args.checkpoint}"
    drawn = draw(panels, "share left", "price (bits)", title, log=False)
    write_atomic(args.figure, saved(drawn, args.figure.suffix[1:]))
    print(args.figure)
