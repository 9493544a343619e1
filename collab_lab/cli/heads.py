"""``fairseq-collab heads``: measure what the heads of a model do and how much they matter.

:mod:`collab_lab.heads` measures; :mod:`collab_lab.results.heads_page` writes the page.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab_common.command import not_negative
from collab_common.encodings import are_of_other_tokens
from collab_common.errors import UserError
from collab_common.files import sha256, write_contents
from collab_common.folder import manifest
from collab_common.progress import say
from collab_lab.cli import options

if TYPE_CHECKING:
    from collab_lab.trained.checkpoint import Trained

NUMBERS = "heads.json"
#: Sentences that prices come from.
SENTENCES = 1000


def build_parser() -> ArgumentParser:
    parser = options.parser_of(
        "heads",
        "Show what each attention head of a trained transformer does: where it looks, how "
        "confidently, whether along syntactic relations, how much the prediction depends on it, "
        "and what its removal costs. Write heads.json, heads.md and a figure.",
        "example: fairseq-collab heads checkpoint_best.pt data-bin --conllu en.conllu.gz "
        "--out heads",
    )
    options.add_model(parser, options.TRANSFORMER, data=None)
    options.add_out(parser, "DIR", "folder for the results")
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
        "--relevance-sentences", type=not_negative, default=100, metavar="N",
        help="number of random sentences for relevance, at one backward pass per token; 0 skips "
        "relevance (default: 100)",
    )  # fmt: skip
    return parser


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.conllu is None:
        options.reject(parser, args, ("subwords",), "needs --conllu")
    options.check_new(args, args.out / NUMBERS)
    if args.out.is_file():  # else it would fail after all measurements
        raise UserError("is a file, not a folder", args.out, "give another --out")
    model = options.model(args)
    from collab_lab.heads import measures, stages
    from collab_lab.results import heads_page

    stages.check(model)
    content: dict[str, Any] = {
        "checkpoint": args.checkpoint.name,
        "checkpoint_sha256": sha256(args.checkpoint),
        "data": options.names_of(args.data),
        "subset": args.subset,
        "arch": model.arch,
        "heads": model.heads,
        **options.provenance("heads", argv, args.cpu),
        "measures": {},
    }
    for measured in [stage() for stage in planned(args, model)]:
        content["measures"] |= measured.pop("measures", {})
        content |= measured
    content["roles"] = measures.roles(content, model.heads)
    numbers = json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"
    write_contents(args.out, {NUMBERS: numbers, **heads_page.files(content)})
    print(f"{args.out}: {NUMBERS}, heads.md, heads.svg, heads.pdf")
    return 0


def planned(args: Namespace, model: Trained) -> Sequence[Callable[[], dict[str, Any]]]:
    """The measurements that the options ask for; faulty inputs raise an error here."""
    from fairseq import utils

    from collab_lab.heads import stages, trees
    from collab_lab.heads.relevance import Relevance
    from collab_lab.heads.trees import align, segmenter
    from collab_lab.trained.sentences import dataset_of

    subset, number = args.subset, args.relevance_sentences
    dataset_of(model, subset)
    chosen = [
        partial(stages.price, model, subset, SENTENCES),  # the first: it refuses other attentions
        partial(stages.attention, model, subset),
        partial(stages.importance, model, subset),
    ]
    if model.is_language_model:
        print("a language model: no cross-attention, syntax, rare source tokens or relevance")
        if args.conllu is not None:
            problem = "scores heads of an encoder, which a language model does not have"
            raise UserError(problem, "--conllu", "leave it out")
        return chosen
    if args.conllu is not None:
        first = Path(utils.split_paths(str(args.data))[0])  # the others only have training text
        segment = segmenter(first, model.cfg.task.source_lang, args.subwords)
        sentences = trees.read(args.conllu)
        say_if_untokenised(model, first, [sentence.text for sentence in sentences])
        gold = [align(sentence, segment) for sentence in sentences]
        chosen.append(partial(stages.syntax, model, gold, args.conllu.name))
    if number:
        chosen.append(partial(stages.relevance, Relevance(model.model), model, subset, number))
    return chosen


def say_if_untokenised(model: Trained, data: Path, lines: Sequence[str]) -> None:
    """Warn if gold trees are of ordinary text, and the training text was somebody's own tokens."""
    form, words = manifest(data).get("form"), model.task.source_dictionary
    if form and not form["moses"] and are_of_other_tokens(lines, words.symbols):
        say(
            "warning: the model was trained on tokens, and most sentences of --conllu end in a "
            "word with its mark: remove SpaceAfter=No from the file, so that blanks are between "
            "its words"
        )
