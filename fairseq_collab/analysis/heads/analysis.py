"""All that is measured of a model's heads on one subset: the parts of ``heads.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import bar
from fairseq_collab.analysis.heads import conllu, measures
from fairseq_collab.analysis.heads.importance import (
    Importance,
    cross_entropy,
    loss_increases,
    normalised,
    predicted,
    rank_correlations,
)
from fairseq_collab.analysis.heads.measures import SELF_SITES, Measure
from fairseq_collab.analysis.heads.relevance import RULES, Relevance
from fairseq_collab.analysis.heads.subwords import Segmenter, align
from fairseq_collab.analysis.heads.syntax import SyntaxScores, as_sample, tree_batches
from fairseq_collab.analysis.heads.weights import attend
from fairseq_collab.trained.opener import MAX_TOKENS, Trained, epoch, singles, to_device

#: The longest sentence that is short, in tokens of either side: its map can still be read.
LONGEST = 20
#: Decimals of a weight of an example.
DIGITS = 3


def measure(
    trained: Trained, subset: str, max_tokens: int | None, with_gradients: bool
) -> dict[str, Any]:
    """What is measured on all sentences of a subset; errors are those of :func:`.opener.epoch`.

    Args:
        max_tokens: of a batch, padding included; as in the training if None.
        with_gradients: importance, too.
    """
    model = trained.model
    confidence, entropy = Measure(measures.confidence), Measure(measures.width)
    positions = Measure(measures.positions, SELF_SITES)
    distance = Measure(measures.distance)
    rare = measures.RareTokens(trained.task.source_dictionary)
    importance = Importance(model)
    counts = dict.fromkeys(("sentences", "source_tokens", "target_tokens"), 0)
    loss = 0.0
    for sample in epoch(trained, subset, max_tokens):
        batch = attend(model, sample)
        for found in (confidence, entropy, positions, distance, rare):
            found.see(batch)
        if with_gradients:
            importance.add(sample)
        counts["sentences"] += len(batch.source)
        counts["source_tokens"] += int(batch.source.ne(batch.pad).sum())
        counts["target_tokens"] += int(predicted(model.decoder, sample["target"]).sum())
        if trained.is_language_model:
            with torch.inference_mode():
                loss += float(cross_entropy(model, sample).sum())
    offsets = positions.result()
    of_heads: dict[str, Any] = {
        "confidence": confidence.result(),
        "positional": measures.best_shares(offsets),
        "rare": rare.pointed[1].result(),
        "rare_of_two": rare.pointed[2].result(),
        "entropy": entropy.result(),
    }
    if with_gradients:
        of_heads |= {
            "importance_token": importance.per_token(),
            "importance_sample": importance.per_sample(),
            "importance_token_normalised": normalised(importance.per_token()),
        }
    projections = measures.projection_cosines(model)
    perplexity = math.exp(loss / counts["target_tokens"]) if trained.is_language_model else None
    return {
        **counts,
        "perplexity": perplexity,
        "measures": of_heads,
        "offsets": {"offsets": list(measures.OFFSETS), **{s: offsets[s] for s in SELF_SITES}},
        "rare": {"frequent": measures.FREQUENT, **rare.about()},
        "similarity": {"weights": distance.result(), "projections": projections},
    }


def relevances(
    trained: Trained, subset: str, rules: Sequence[str], number: int, max_tokens: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measures of relevance by each rule, and what is said of them in ``heads.json``.

    Args:
        rules: of :data:`fairseq_collab.analysis.heads.relevance.RULES`.
        number: of sentences, evenly spread; our rule is quick and takes all.
        max_tokens: of a batch, as above.
    """
    of_heads, about = {}, {}
    few = singles(trained, subset, number)
    for rule in rules:
        relevance = Relevance(trained.model, rule)
        samples = epoch(trained, subset, max_tokens) if rule == "ours" else bar(rule, few)
        sentences = 0
        for sample in samples:
            relevance.add(sample)
            sentences += len(sample["target"])
        of_heads["relevance" if rule == RULES[0] else f"relevance_{rule}"] = relevance.result()
        lost = None if rule == "released" else relevance.deviation
        about[rule] = {"sentences": sentences, "lost": lost}
    return of_heads, about


def left_out(
    trained: Trained, subset: str, max_tokens: int | None, of_heads: Mapping[str, Any]
) -> dict[str, Any]:
    """How much the loss grows without each head, and what the other measures say of it."""
    found = loss_increases(trained.model, list(epoch(trained, subset, max_tokens)))
    told = {name: rank_correlations(one, found) for name, one in of_heads.items()}
    return {"measures": {**of_heads, "loss_increase": found}, "rank_correlations": told}


def score_syntax(
    trained: Trained,
    trees: Path,
    segment: Segmenter,
    relations: Sequence[str],
    max_tokens: int | None = None,
) -> dict[str, Any]:
    """The part ``syntax``: the encoder alone reads the sentences of ``trees``."""
    model, dictionary = trained.model, trained.task.source_dictionary
    longest = min(trained.task.max_positions()[0], model.max_positions()[0])
    max_tokens = max_tokens or trained.cfg.dataset.max_tokens or MAX_TOKENS
    # All in memory: even the largest treebanks are small beside a training corpus.
    sentences = bar("trees", conllu.read(trees))
    read = [tree for sentence in sentences if (tree := align(sentence, segment)).symbols]
    fitting = [tree for tree in read if len(tree.symbols) < longest]  # and the end of sentence
    if not fitting:
        raise UserError("has no sentence that the model can read", trees)
    scores = SyntaxScores(relations)
    for batch in bar("batches of trees", list(tree_batches(fitting, max_tokens))):
        sample = to_device(as_sample(batch, dictionary), trained.device)
        scores.add(attend(model, sample), batch)
    subwords = [dictionary.index(symbol) for tree in fitting for symbol in tree.symbols]
    return {
        "trees": trees.name,
        "sentences": len(fitting),
        "side": "source",
        "too_long": len(read) - len(fitting),
        "subwords": len(subwords),
        "unknown": subwords.count(dictionary.unk()),
        "pairs_within_a_unit": sum(tree.lost for tree in fitting),
        "relations": scores.result(),
    }


def chosen_lines(dataset: Any, lines: Sequence[int] | None, number: int) -> list[int]:
    """Lines of a data set, from 0, whose attention is shown; UserError names one that is not there.

    Args:
        lines: those that are wanted, from 1.
        number: else so many short sentences, evenly spread; fewer if there are fewer.
    """
    for line in lines or ():
        if line > len(dataset):
            raise UserError(f"there are {len(dataset)} sentences, no {line}", "--example-lines")
    if lines:
        return [line - 1 for line in lines]
    short = [i for i in range(len(dataset)) if np.max(dataset.size(i)) <= LONGEST]
    number = min(number, len(short))
    return [short[i * len(short) // number] for i in range(number)]


def example(trained: Trained, subset: str, line: int) -> dict[str, Any]:
    """Tokens and all heads' weights of a sentence of a data set that is loaded.

    The source and the target end in the end of sentence, weights ``H x T x S`` are rounded; the
    rows of the decoder are those of the target shifted right, whose first is the end of sentence.
    Of a language model the source is what it reads.
    """
    dataset, task = trained.task.dataset(subset), trained.task
    seen = attend(trained.model, to_device(dataset.collater([dataset[line]]), trained.device))
    source, target = seen.source[0], seen.sample["target"][0]
    return {
        "line": line + 1,
        "source": [task.source_dictionary[i] for i in source.tolist()],
        "target": [task.target_dictionary[i] for i in target.tolist()],
        "weights": {
            site: [rounded(one[0]) for one in layers] for site, layers in seen.weights.items()
        },
    }


def rounded(weights: Tensor) -> list[Any]:
    """Nested lists, with as many decimals as can be seen."""
    # In double precision, or the lists would hold the many digits of the nearest single.
    return torch.round(weights.double(), decimals=DIGITS).tolist()
