"""``fairseq-collab heads``: what the heads of a trained model do, and how much they matter.

:mod:`collab_lab.analysis` measures; :mod:`collab_lab.results.heads_page` writes the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collab_common.command import not_negative
from collab_common.errors import UserError
from collab_common.files import sha256
from collab_lab.cli import options

if TYPE_CHECKING:
    from collab_lab.analysis.stages import Stage
    from collab_lab.trained.checkpoint import Trained

#: Sentences that prices come from.
SENTENCES = 1000


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "heads",
        "Show what each attention head of a trained transformer does: where it looks, how "
        "confidently, whether along syntactic relations, how much the prediction depends on it, "
        "and what its removal costs. Writes heads.json, heads.md and a figure. Rerun the command "
        "to resume it.",
        "example: fairseq-collab heads checkpoint_best.pt data-bin --conllu en.conllu.gz "
        "--out heads",
    )
    options.add_model(parser, options.TRANSFORMER, data=None)
    options.add_out(parser, "DIR", "folder for the results", force=False)
    parser.add_argument("--subset", default="valid", help="subset to read (default: valid)")
    parser.add_argument(
        "--conllu", type=Path, metavar="FILE",
        help="score encoder heads for syntactic relations in these gold trees (Universal "
        "Dependencies, source language, gzipped or not)",
    )  # fmt: skip
    parser.add_argument(
        "--subwords", type=Path, metavar="FILE",
        help="sentencepiece model or BPE codes for --conllu (default: spm.model or code in DATA)",
    )  # fmt: skip
    parser.add_argument(
        "--relevance-sentences", type=not_negative, metavar="N",
        help="number of random sentences for relevance, at one backward pass per token; 0 skips "
        "relevance (default: what ten minutes allow)",
    )  # fmt: skip
    return parser


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.conllu is None:
        options.reject(parser, args, ("subwords",), "needs --conllu")
    loaded = options.model(args)
    from collab_lab.analysis import heads_file, stages
    from collab_lab.results import heads_page

    stages.check(loaded)
    path, heads = args.out / heads_file.NAME, loaded.heads
    if loaded.is_language_model and args.conllu is not None:
        problem = "a language model has no encoder, whose heads are scored for syntactic relations"
        raise UserError(problem, "--conllu", "leave it out")
    to_measure = planned(args, loaded)
    args.out.mkdir(parents=True, exist_ok=True)
    results = heads_file.resume(path, stages.identity(args.checkpoint, args.data, args.subset))
    origin = options.provenance("heads", argv, args.cpu)
    results = {"arch": loaded.arch, "heads": heads, **origin, **results}
    try:
        stages.run(results, to_measure, loaded, path, origin)
    finally:  # when interrupted, of the measures that are done
        if results["stages"]:
            heads_page.write_page(results, args.out)
    print(f"{args.out}: {heads_file.NAME}, {heads_page.NAME}, {heads_page.FIGURE}")
    return 0


def planned(args: argparse.Namespace, loaded: Trained) -> list[Stage]:
    """The stages that the options ask for, cheapest first; a fault in an input fails here."""
    from collab_lab.analysis import stages, trees
    from collab_lab.analysis.stages import Stage
    from collab_lab.analysis.trees import align, segmenter
    from collab_lab.trained.checkpoint import dataset_of

    subset, number = args.subset, args.relevance_sentences
    dataset_of(loaded.task, subset)
    chosen_stages = [Stage("attention", {}, lambda: stages.attention(loaded, subset))]
    if args.conllu is not None:
        segment = segmenter(args.data, loaded.cfg.task.source_lang, args.subwords)
        gold = [align(sentence, segment) for sentence in trees.read(args.conllu)]
        settings = {"trees": args.conllu.name, "sha256": sha256(args.conllu)}
        chosen_stages.append(Stage("syntax", settings, lambda: stages.syntax(loaded, gold)))
    chosen_stages.append(Stage("importance", {}, lambda: stages.importance(loaded, subset)))
    read = {"sentences": SENTENCES}
    chosen_stages.append(Stage("price", read, lambda: stages.price(loaded, subset, **read)))
    if loaded.is_language_model:
        print("a language model: no cross-attention, syntax, rare source tokens or relevance")
    elif number != 0:
        settings = {"sentences": number}
        chosen_stages.append(
            Stage("relevance", settings, lambda: stages.relevance(loaded, subset, number))
        )
    return chosen_stages
