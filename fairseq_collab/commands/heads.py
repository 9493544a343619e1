"""``fairseq-collab heads``: what the heads of a trained model do, and how much they matter.

Measured in :mod:`fairseq_collab.analysis.heads`, written and summed up in
:mod:`fairseq_collab.results.heads.page`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collab_common.command import not_negative, positive
from collab_common.errors import UserError
from collab_common.files import make_folder
from fairseq_collab.analysis.heads import analysis, content
from fairseq_collab.analysis.heads.relevance import RULES
from fairseq_collab.analysis.heads.roles import roles
from fairseq_collab.analysis.heads.source import load
from fairseq_collab.analysis.heads.subwords import segmenter, without_capitals
from fairseq_collab.analysis.heads.syntax import RELATIONS
from fairseq_collab.commands import options
from fairseq_collab.results.heads import page

OF_RELEVANCE = ("relevance_rule", "relevance_sentences")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "heads",
        "What each attention head of a trained transformer (stock fairseq's or ours; "
        "for translation, or a language model) does: where it looks, how surely, whether along "
        "syntactic relations, how much the prediction depends on it. Writes heads.json, "
        "report.html and figures.",
        "example: fairseq-collab heads checkpoint_best.pt data-bin --conllu en.conllu.gz "
        "--out heads",
    )
    options.add_checkpoint(parser, "a trained transformer")
    options.add_data(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="of the results")
    parser.add_argument("--subset", default="valid", help="which sentences (default: valid)")
    parser.add_argument(
        "--conllu", type=Path, metavar="FILE",
        help="gold trees of sentences in the source language, gzipped or not: scores encoder heads "
        "for syntactic relations",
    )  # fmt: skip
    parser.add_argument(
        "--relations", nargs="+", default=RELATIONS, metavar="NAME",
        help="of Universal Dependencies; nsubj takes in nsubj:pass and so on "
        f"(default: {' '.join(RELATIONS)})",
    )  # fmt: skip
    parser.add_argument(
        "--subwords", type=Path, metavar="FILE",
        help="the sentencepiece model, or BPE codes, that the text was segmented with (default: "
        "spm.model or code in DATA or in DATA/../text)",
    )  # fmt: skip
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--examples", type=not_negative, default=4, metavar="N",
        help="of so many short sentences the report shows the attention (default: 4)",
    )  # fmt: skip
    shown.add_argument(
        "--example-lines", type=positive, nargs="+", metavar="LINE",
        help="of these sentences of the subset instead, from 1",
    )  # fmt: skip
    parser.add_argument(
        "--no-relevance", action="store_true",
        help="leave out relevance and importance, which need gradients",
    )  # fmt: skip
    parser.add_argument(
        "--relevance-rule", choices=RULES, nargs="+", default=RULES[:1], metavar="RULE",
        help="how relevance is handed on: as in the paper (Voita et al. 2019, appendix A); ours, "
        "which takes attention weights for constants; as in the paper's released code (default: "
        "paper)",
    )  # fmt: skip
    parser.add_argument(
        "--relevance-sentences", type=positive, default=200, metavar="N",
        help="of so many, evenly spread, for all rules but ours: each is read once for each of its "
        "tokens (default: 200)",
    )  # fmt: skip
    parser.add_argument(
        "--leave-out", action="store_true",
        help="measure, too, how much the loss grows without each head, a pass for each, and what "
        "other measures say of it",
    )  # fmt: skip
    parser.add_argument(
        "--max-tokens", type=positive, metavar="N",
        help="of a batch, padding included (default: as in training)",
    )  # fmt: skip
    options.add_cpu(parser)
    options.add_user_dir(parser)
    return parser


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End with status 2 where an option would have no effect."""
    if args.conllu is None:
        options.refuse(parser, args, ("relations", "subwords"), "needs --conllu")
    if args.no_relevance:
        options.refuse(
            parser, args, OF_RELEVANCE, "has no effect with --no-relevance: leave one out"
        )


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check(parser, args)
    options.import_plugin(args)
    loaded = load(args.checkpoint, args.data, options.device(args))
    task, alone = loaded.task, loaded.is_language_model
    if alone and args.conllu is not None:
        what = "a language model has no encoder, whose heads are scored for syntactic relations"
        raise UserError(what, "--conllu", "leave it out")
    if alone:
        what = "has no effect, as relevance is not measured of a language model: leave it out"
        options.refuse(parser, args, OF_RELEVANCE, what)
    task.load_dataset(args.subset)
    lines = analysis.chosen_lines(task.dataset(args.subset), args.example_lines, args.examples)
    make_folder(args.out)
    syntax = None
    if args.conllu is not None:  # first: a fault in the trees shows before the long part
        lowercased = without_capitals(task.source_dictionary.symbols)
        segment = segmenter(args.data, task.cfg.source_lang, args.subwords, lowercased)
        syntax = analysis.score_syntax(
            loaded, args.conllu, segment, args.relations, args.max_tokens
        )
    found: dict[str, Any] = {
        "checkpoint": args.checkpoint.name,
        "arch": loaded.arch,
        "data": args.data.resolve().name,
        "subset": args.subset,
        **options.made("heads", argv, args.cpu),
        "heads": loaded.heads,
        **analysis.measure(loaded, args.subset, args.max_tokens, not args.no_relevance),
        "syntax": syntax,
        "relevance_conservation": None,
    }
    if alone:
        print("a language model: no cross-attention, syntax, rare source tokens or relevance")
    elif not args.no_relevance:
        of_heads, found["relevance"] = analysis.relevances(
            loaded, args.subset, args.relevance_rule, args.relevance_sentences, args.max_tokens
        )
        found["measures"] |= of_heads
        lost = [one["lost"] for one in found["relevance"].values() if one["lost"] is not None]
        found["relevance_conservation"] = max(lost, default=None)
    if args.leave_out:
        found |= analysis.left_out(loaded, args.subset, args.max_tokens, found["measures"])
    found["roles"] = roles(found, loaded.heads)
    found["examples"] = [analysis.example(loaded, args.subset, line) for line in lines]
    content.write(args.out / content.NAME, found)
    page.write(found, args.out)
    print(page.summary(found))
    print(f"{args.out}: {content.NAME}, {page.NAME} and figures")
    return 0
