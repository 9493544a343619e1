"""``fairseq-collab compare``: paired bootstrap test of two translations of one set."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from collab_common.errors import UserError
from collab_common.progress import say
from collab_lab.cli import options

#: BLEU within which a run's translations are those that were scored.
SAME = 0.01


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "compare",
        "Compare two translations of one test set by a paired bootstrap over sentences. "
        "For several seeds of each method, see fairseq-collab table --against.",
    )
    about = "run folder, or file with translations"
    parser.add_argument("baseline", type=Path, help=about)
    parser.add_argument("system", type=Path, help=about)
    parser.add_argument(
        "--reference", type=Path, help="raw reference text (default: as in the runs)"
    )
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    if args.baseline.resolve() == args.system.resolve():
        raise UserError("is both the baseline and the system", args.system, "give two systems")
    from collab_lab.metrics import significance
    from collab_lab.results.collect import decoding_of
    from collab_lab.results.render import grid, num
    from collab_lab.runs.record import doubts
    from collab_lab.runs.translations import read_system

    baseline, system = (read_system(path, args.reference) for path in (args.baseline, args.system))
    if baseline.references != system.references:
        counts = f"{len(baseline.references)} and {len(system.references)} sentences"
        problem = f"{args.baseline} and {args.system} were scored against different references"
        raise UserError(f"{problem} ({counts})", todo="compare translations of one set")
    texts = baseline.hypotheses, system.hypotheses
    of_tokens = baseline.of_tokens or system.of_tokens
    results = significance.paired(*texts, baseline.references, of_tokens)
    for one, bleu in ((baseline, results[0].baseline), (system, results[0].system)):
        scored = one.record.bleu if one.record and not args.reference else None
        if scored is not None and abs(scored - bleu) > SAME:
            problem = f"its translations have BLEU {bleu:.2f}, its score.json says {scored:.2f}"
            raise UserError(problem, one.path, "remove score.json, and run fairseq-collab score")
    rows = [
        [
            one.metric,
            f"{one.baseline:.2f} ± {one.baseline_ci:.2f}",
            f"{one.system:.2f} ± {one.system_ci:.2f}",
            num(one.difference, "+.2f"),
            f"{num(one.low, '+.2f')} to {num(one.high, '+.2f')}",
            f"{one.p:.4f}",
        ]
        for one in results
    ]
    for one in (baseline, system):
        for doubt in doubts(asdict(one.record)) if one.record else ():
            say(f"warning: {one.path}: {doubt}")
    searches = {decoding_of(one.record) for one in (baseline, system) if one.record}
    if len(searches) > 1:
        say(f"warning: different decoding: {' and '.join(sorted(map(str, searches)))}")
    different = significance.different(*texts)
    print(f"baseline: {baseline.path}\nsystem:   {system.path}")
    print(f"{different} of {len(system.hypotheses)} sentences translated differently\n")
    print("paired bootstrap\n")
    print(grid(["", "baseline", "system", "difference", "95% interval", "p"], rows), end="\n\n")
    print(*(f"{one.metric}: {one.signature}" for one in results), sep="\n", end="\n\n")
    print("±: half of a 95% bootstrap interval. 95% interval: of the difference; it excludes 0")
    print("where p is at most 0.05. p: two-sided, of these two outputs, from the same resamples;")
    print("it says nothing about other trainings of the same models.")
    return 0
