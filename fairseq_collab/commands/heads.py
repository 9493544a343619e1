"""``fairseq-collab heads``: what the heads of a trained model do, and how much they matter.

Writes ``heads.json``, a page ``report.html`` and figures.  What is measured, and how:
:mod:`~fairseq_collab.analysis.heads.measures`, :mod:`~fairseq_collab.analysis.heads.syntax`,
:mod:`~fairseq_collab.analysis.heads.similarity`, :mod:`~fairseq_collab.analysis.heads.relevance`,
:mod:`~fairseq_collab.analysis.heads.importance`, :mod:`~fairseq_collab.analysis.heads.roles`.
"""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from tqdm import tqdm

from collab_common.command import positive
from collab_common.errors import UserError
from collab_common.files import make_folder
from fairseq_collab.analysis.heads import conllu, content
from fairseq_collab.analysis.heads.examples import check_lines, examples, short_lines
from fairseq_collab.analysis.heads.importance import Importance, normalised
from fairseq_collab.analysis.heads.measures import (
    FREQUENT,
    OFFSETS,
    Confidence,
    Entropy,
    Positional,
    RareTokens,
    with_all_sites,
)
from fairseq_collab.analysis.heads.relevance import Relevance
from fairseq_collab.analysis.heads.roles import roles
from fairseq_collab.analysis.heads.similarity import WeightDistance, projection_cosines
from fairseq_collab.analysis.heads.source import Loaded, batches, load, to_device
from fairseq_collab.analysis.heads.subwords import Segmenter, segmenter
from fairseq_collab.analysis.heads.syntax import RELATIONS, SyntaxScores, TreeBatches
from fairseq_collab.analysis.heads.weights import attend
from fairseq_collab.metrics.provenance import circumstances
from fairseq_collab.models.layers import SITES
from fairseq_collab.results.heads import page

#: Of a batch of trees, where neither the command nor the training says.
MAX_TOKENS = 4096


def build_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="fairseq-collab heads",
        description="What each attention head of a trained transformer (stock fairseq's or ours) "
        "does: where it looks, how surely, whether along syntactic relations, how much the "
        "prediction depends on it. Writes heads.json, report.html and figures.",
        epilog="example: fairseq-collab heads checkpoint_best.pt data-bin --conllu en.conllu.gz "
        "--out heads",
    )
    parser.add_argument("checkpoint", type=Path, help="a trained encoder-decoder transformer")
    parser.add_argument("data", type=Path, help="the folder that fairseq-preprocess has written")
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
        "--examples", type=whole, default=4, metavar="N",
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
        "--max-tokens", type=positive, metavar="N",
        help="of a batch, padding included (default: as in training)",
    )  # fmt: skip
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument("--user-dir", metavar="DIR", help="a further plug-in, if the model is its")
    return parser


def whole(text: str) -> int:
    """A whole number from 0."""
    return 0 if text == "0" else positive(text)


def measure(
    loaded: Loaded, subset: str, max_tokens: int | None, with_gradients: bool
) -> dict[str, Any]:
    """All that is measured on the sentences of a subset, as parts of ``heads.json``.

    Raises:
        UserError: see :func:`fairseq_collab.analysis.heads.source.batches`.
    """
    model, heads = loaded.model, loaded.heads
    confidence, widths, positions = Confidence(heads), Entropy(heads), Positional(heads)
    rare = RareTokens(heads, loaded.task.source_dictionary)
    alike = WeightDistance(heads)
    importance = Importance(model)
    relevance = Relevance(model) if with_gradients else None
    counts = dict.fromkeys(("sentences", "source_tokens", "target_tokens"), 0)
    for sample in batches(loaded, subset, max_tokens):
        batch = attend(model, sample)
        for found in (confidence, widths, positions, rare, alike):
            found.add(batch)
        if relevance is not None:
            relevance.add(sample)
            importance.add(sample)
        counts["sentences"] += len(batch.source_padding)
        counts["source_tokens"] += int((~batch.source_padding).sum())
        counts["target_tokens"] += int((~batch.target_padding).sum())
    measures: dict[str, Any] = {
        "confidence": confidence.result(),
        "positional": positions.result(),
        "rare": rare.result(),
        "rare_of_two": rare.of_two(),
        "entropy": widths.result(),
    }
    if relevance is not None:
        measures |= {
            "relevance": relevance.result(),
            "importance_token": importance.per_token(),
            "importance_sample": importance.per_sample(),
            "importance_token_normalised": normalised(importance.per_token()),
        }
    return {
        **counts,
        "relevance_conservation": None if relevance is None else relevance.deviation,
        "measures": {name: with_all_sites(found) for name, found in measures.items()},
        "offsets": {"offsets": list(OFFSETS), **positions.offsets()},
        "rare": {"frequent": FREQUENT, **rare.about()},
        "similarity": {"weights": alike.result(), "projections": projection_cosines(model)},
    }


def score_syntax(
    loaded: Loaded, trees: Path, segment: Segmenter, relations: Sequence[str], max_tokens: int
) -> dict[str, Any]:
    """The part ``syntax`` of ``heads.json``: the encoder alone reads the sentences of ``trees``.

    Raises:
        UserError: the file is not CoNLL-U, or has no sentence that the model can read.
    """
    longest = min(loaded.task.max_positions()[0], loaded.model.max_positions()[0])
    read = TreeBatches(
        tqdm(conllu.read(trees), desc="trees", unit="tree", disable=None, leave=False),
        segment, loaded.task.source_dictionary, longest, max_tokens,
    )  # fmt: skip
    scores = SyntaxScores(loaded.heads, relations)
    for sample, found in read:
        scores.add(attend(loaded.model, to_device(sample, loaded.device)), found)
    if not scores.sentences:
        raise UserError("has no sentence that the model can read", trees)
    return {
        "trees": trees.name,
        "sentences": scores.sentences,
        "side": "source",
        "too_long": read.too_long,
        "subwords": read.tokens,
        "unknown": read.unknown,
        "pairs_within_a_unit": scores.lost,
        "relations": scores.result(),
    }


def summary(found: Mapping[str, Any]) -> str:
    """A line a site and layer, and one a role of a head."""
    lines = [f"{'site':8} {'layer':>5} {'confidence':>10} {'positional':>10} {'entropy':>8}  roles"]
    for site in SITES:
        for layer, named in enumerate(found["roles"][site]):
            means = [_mean(found["measures"][name][site], layer) for name in
                     ("confidence", "positional", "entropy")]  # fmt: skip
            roles_here = [
                f"{head}: {', '.join(names)}" for head, names in enumerate(named) if names
            ]
            line = "{:8} {:>5} {:>10} {:>10} {:>8}  {}".format(
                site, layer, *means, "; ".join(roles_here) or "-"
            )
            lines.append(line)
    for relation, directions in (found["syntax"] or {}).get("relations", {}).items():
        for direction, scores in directions.items():
            lines.append(f"{relation} {direction}: {_best(scores)}")
    return "\n".join(lines)


def _mean(layers: Sequence[Sequence[float | None]] | None, layer: int) -> str:
    """The mean of a layer's heads."""
    values = [value for value in layers[layer] if value is not None] if layers else []
    return f"{sum(values) / len(values):.2f}" if values else "-"


def _best(scores: Mapping[str, Any]) -> str:
    """The best head of a relation beside the baseline."""
    if not scores["pairs"]:
        return "no pairs"
    accuracy, layer, head = max(
        (accuracy, -i, -j)
        for i, layer in enumerate(scores["encoder"])
        for j, accuracy in enumerate(layer)
    )
    baseline = scores["baseline"]
    return (
        f"{accuracy:.1%} by head {-head} of layer {-layer}, {baseline['accuracy']:.1%} at offset "
        f"{baseline['offset']:+d}, {scores['pairs']:,} pairs"
    )


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status.

    Raises:
        UserError: the checkpoint, the data or the trees cannot be used, or a file cannot be
            written.
    """
    args = build_parser().parse_args(argv)
    utils.import_user_module(Namespace(user_dir=args.user_dir))
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    loaded = load(args.checkpoint, args.data, device)
    task = loaded.task
    task.load_dataset(args.subset)
    dataset = task.dataset(args.subset)
    lines = [line - 1 for line in args.example_lines or []] or short_lines(dataset, args.examples)
    check_lines(dataset, lines)
    make_folder(args.out)
    syntax = None
    if args.conllu is not None:  # first: a mistake in the trees is told before the long part
        segment = segmenter(args.data, task.cfg.source_lang, args.subwords)
        max_tokens = args.max_tokens or loaded.cfg.dataset.max_tokens or MAX_TOKENS
        syntax = score_syntax(loaded, args.conllu, segment, args.relations, max_tokens)
    found = {
        "checkpoint": args.checkpoint.name,
        "arch": loaded.arch,
        "data": args.data.resolve().name,
        "subset": args.subset,
        "command": shlex.join(["fairseq-collab", "heads", *argv]),
        **circumstances(args.cpu),
        "heads": loaded.heads,
        **measure(loaded, args.subset, args.max_tokens, not args.no_relevance),
        "syntax": syntax,
    }
    found["roles"] = roles(found, loaded.heads)
    found["examples"] = examples(loaded, args.subset, lines)
    content.write(args.out / content.NAME, found)
    page.write(found, args.out)
    print(summary(found))
    print(f"{args.out}: {content.NAME}, {page.NAME} and figures")
    return 0
