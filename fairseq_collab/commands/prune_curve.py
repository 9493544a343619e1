"""``fairseq-collab prune-curve``: BLEU of a model that loses more and more of its heads."""

from __future__ import annotations

import argparse
import gc
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from collab_common import files
from collab_common.errors import UserError
from collab_common.progress import say
from fairseq_collab.analysis.heads import content
from fairseq_collab.commands import contrast, options
from fairseq_collab.metrics.contrast import Pairs, signature
from fairseq_collab.metrics.model_bleu import BEAM, bleu, check_translation
from fairseq_collab.prune import choices
from fairseq_collab.prune.choices import MEASURE, Heads, all_heads, without_least
from fairseq_collab.prune.curve import (
    CURVES,
    FORMS,
    Curve,
    counts,
    heads_in,
    measured,
    sites_of,
)
from fairseq_collab.prune.surgery import Kept, load, pruned
from fairseq_collab.results.prune_curve import NAME, Point, Results, write_report
from fairseq_collab.trained.opener import Trained


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "prune-curve",
        "Takes more and more heads out of a trained transformer (stock fairseq's or ours with "
        "concatenated heads), the least important first, and translates with what is left: BLEU "
        f"against the share of heads removed. Writes {NAME}, table.md and curve.png. Given again "
        "after an interruption, it goes on.",
        "example: fairseq-collab prune-curve average.pt data-bin --out curve",
    )
    options.add_checkpoint(parser)
    options.add_data(parser)
    options.add_output(parser, "--out", "DIR", "of the results")
    parser.add_argument("--subset", default="test", help="what is translated (default: test)")
    parser.add_argument(
        "--sites", type=partial(options.some_of, CURVES), default=CURVES, metavar="SITES",
        help="whose heads go, a curve each: encoder, decoder, cross, or all (which compete), "
        "joined by commas (default: these four)",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=options.proper_share, default=0.1, metavar="X",
        help="share of the heads that go from point to point (default: 0.1)",
    )  # fmt: skip
    parser.add_argument(
        "--most", type=options.share, default=0.9, metavar="X",
        help="share at the last (default: 0.9)",
    )  # fmt: skip
    parser.add_argument(
        "--importance", type=Path, metavar="FILE",
        help="heads.json of fairseq-collab heads (default: importance is measured)",
    )  # fmt: skip
    parser.add_argument(
        "--importance-subset", metavar="NAME",
        help="on which importance is measured (default: valid)",
    )  # fmt: skip
    parser.add_argument(
        "--by", default=MEASURE, metavar="MEASURE",
        help=f"what heads are ordered by: one of FILE's measures, or {', '.join(FORMS)} "
        f"(default: {MEASURE}); measures have length 1 in each layer",
    )  # fmt: skip
    parser.add_argument(
        "--iterative", action="store_true",
        help="measure importance again at every step, of the heads that are left (default: once, "
        "as in the paper)",
    )  # fmt: skip
    contrast.add_pairs(parser)
    options.add_cpu(parser)
    options.add_user_dir(parser)
    return parser


def check(parser: argparse.ArgumentParser, args: Namespace) -> None:
    """Refuse options that contradict each other; exits."""
    if args.importance is not None:
        reason = "has no effect with --importance, which is measured already: leave one out"
        options.refuse(parser, args, ("iterative", "importance_subset"), reason)
    elif args.by not in FORMS:
        parser.error(f"argument --by: without --importance one of {', '.join(FORMS)}")
    if args.pairs is None:
        options.refuse(parser, args, ("pairs_number",), "needs --pairs")


def check_some_go(args: Namespace, heads: Heads) -> None:
    """Some point of a curve must have lost a head."""
    totals = [heads_in(curve, heads) for curve in args.sites]
    if not any(counts(total, args.steps, args.most)[-1] for total in totals):
        todo = "give a larger --most, or smaller --steps"
        raise UserError("no head would go", where="--most", todo=todo)


def settings(args: Namespace, pairs: Sequence[Pairs]) -> dict[str, Any]:
    """What the points of a curve depend on."""
    given = args.importance
    if given is not None:
        content.read(given)
    return {
        "checkpoint": args.checkpoint.name,
        "checkpoint_sha256": files.sha256(args.checkpoint),
        "data": args.data.resolve().name,
        "subset": args.subset,
        "beam": BEAM,
        "by": args.by,
        "importance": args.importance_subset or "valid" if given is None else given.name,
        "importance_sha256": None if given is None else files.sha256(given),
        "iterative": args.iterative,
        "steps": args.steps if args.iterative else None,
        "pairs": signature(pairs) if pairs else None,
    }


class Pruner:
    """Finds the points of a model's curves, with the options of the command."""

    def __init__(
        self, trained: Trained, args: Namespace, results: Results, pairs: Sequence[Pairs] = ()
    ):
        self.trained, self.args, self.results = trained, args, results
        self.pairs = pairs
        self.whole, self.subset = all_heads(trained.heads), args.importance_subset or "valid"
        self.device = options.device(args)
        results.heads = trained.heads
        if results.importance is None and not args.iterative:
            results.importance = self.importance()
            results.write()

    def importance(self) -> Any:
        """The importance of all heads of the whole model."""
        if path := self.args.importance:
            return content.measure(content.read(path), self.args.by, self.trained.heads, path)
        say(f"importance of the heads, on {self.subset}")
        return self.measure(self.whole)

    def measure(self, kept: Kept) -> Any:
        return measured(self.trained, kept, self.args.by, self.subset, self.device)

    def run(self, curve: Curve) -> None:
        """Find what is not yet known of a curve."""
        total, sites = heads_in(curve, self.trained.heads), sites_of(curve)
        kept, before = self.whole, 0
        for removed in counts(total, self.args.steps, self.args.most):
            point = self.results.find(curve, removed)
            if point is None:
                began = time.perf_counter()
                if not self.args.iterative:
                    assert self.results.importance is not None  # __init__ has seen to it
                    kept = without_least(self.whole, self.results.importance, sites, removed)
                elif removed:
                    kept = without_least(kept, self.measure(kept), sites, removed - before)
                found, accuracies = self.scored(kept)
                seconds = round(time.perf_counter() - began, 1)
                point = Point(curve, removed, total, found, seconds, kept, accuracies)
                self.results.add(point)
                say(f"{curve}: {removed} of {total} heads removed: {found:.2f} BLEU")
            kept, before = point.kept, removed

    def scored(self, kept: Kept) -> tuple[float, dict[str, float] | None]:
        """BLEU of the model with these heads, and its accuracies on contrastive pairs."""
        gc.collect()  # models refer to themselves: the last one would stay in memory beside this
        smaller = pruned(self.trained, kept)
        model = smaller.model.to(self.device)
        model.make_generation_fast_(need_attn=False)
        found = bleu(model, self.trained.task, self.args.subset)
        if not self.pairs:
            return found, None
        judged, _ = contrast.measured(smaller, self.args.data, self.pairs, self.args)
        return found, {name: one.accuracy.mean for name, one in judged.items()}


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check(parser, args)
    options.import_plugin(args)
    trained = load(args.checkpoint, args.data, to_save=False)
    check_translation(trained.task, args.checkpoint, "give a checkpoint of a translation model")
    trained = choices.without_gates(trained)
    check_some_go(args, trained.heads)
    files.make_folder(args.out)
    with files.locked(args.out / "lock"):
        pairs = contrast.pairs_for(trained, args) if args.pairs else []
        made = options.made("prune-curve", argv, args.cpu)
        results = Results(args.out, settings(args, pairs), made)
        pruner = Pruner(trained, args, results, pairs)
        for curve in args.sites:
            pruner.run(curve)
        print(write_report(results))
    print(f"{args.out}: {NAME}, table.md and curve.png")
    return 0
