"""All measures of a model's heads on one subset: the parts of ``heads.json``.

| stage      | work                                                 |
|------------|------------------------------------------------------|
| attention  | one forward pass: confidence, positions, rare tokens |
| syntax     | the encoder reads the gold trees                     |
| importance | one forward and backward pass                        |
| price      | the same, on a number of sentences                   |
| relevance  | a backward pass for each target token                |

    {"checkpoint": NAME, "checkpoint_sha256": ..., "data": NAME, "subset": "valid", "arch": ...,
     "command": ..., commit, versions, ...,
     "heads": {"encoder": [8, 8], "decoder": [8, 8], "cross": [8, 8]},
     "sentences": n,
     "measures": {NAME: {"encoder": [[x per head] per layer], "decoder": ..., "cross": ...}, ...},
     "offsets": {"offsets": [-3, ..., 3],
                 "encoder": [[[share per offset] per head] per layer], "decoder": ...},
     "rare": {"frequent": 500, "sentences": n, "chance": x},
     "syntax": {"trees": FILE, "sentences": n, "too_long": n, "relations":
         {"nsubj": {"dependent->head": {"pairs": n, "baseline": {"offset": 1, "accuracy": x},
                                        "encoder": [[accuracy per head] per layer]}, ...}, ...}},
     "price": {"sentences": n},
     "relevance": {"sentences": n, "lost": share},
     "roles": {"encoder": [[[names] per head] per layer], ...}}

A measure that does not apply to an attention type or to a head is null.  A language model has no
heads in ``encoder`` and ``cross``, and its sentences are blocks of text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.heads import measures
from collab_lab.heads.attention_weights import attend
from collab_lab.heads.importance import importance as gradient_importance
from collab_lab.heads.measures import SELF_TYPES, Measure
from collab_lab.heads.relevance import Relevance
from collab_lab.heads.syntax import SyntaxScores, as_sample, tree_batches
from collab_lab.heads.trees import Tree
from collab_lab.mathematics.head_prices import head_prices
from collab_lab.metrics.cost import reads_source
from collab_lab.statistics.moments import collect
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import (
    MAX_TOKENS,
    batches,
    fitting,
    samples,
    say_if_unknown,
    to_device,
)


def check(trained: Trained) -> None:
    """Raise UserError for an attention without heads, or a model that the measures do not fit."""
    todo = "train a model without it"
    for attention in attentions(trained.model):
        if not attention.module.num_heads:
            problem = f"attention {attention} has no heads left to be analysed"
            raise UserError(problem, trained.path, "give the model that was pruned")
        if attention.type == "decoder" and reads_source(attention.module):
            problem = "--cross-self-attention mixes source and target in one attention"
            raise UserError(problem, trained.path, todo)
    if getattr(trained.model, "full_context_alignment", False):
        problem = "--full-context-alignment reads each target twice, once without a mask"
        raise UserError(problem, trained.path, todo)


# ---- the stages ----------------------------------------------------------------------------------


def attention(trained: Trained, subset: str) -> dict[str, Any]:
    """Measure attention weights on all sentences of a subset."""
    confidence = Measure(measures.confidence)
    positions = Measure(measures.positions, SELF_TYPES)
    rare = measures.RareTokens(trained.task.source_dictionary)
    sentences = 0
    for sample in batches(trained, subset):
        batch = attend(trained.model, sample)
        for measure in (confidence, positions, rare):
            measure.see(batch)
        sentences += len(batch.source)
    offsets = positions.result()
    return {
        "sentences": sentences,
        "measures": {
            "confidence": confidence.result(),
            "positional": measures.best_shares(offsets),
            "rare": rare.pointed.result(),
        },
        "offsets": {"offsets": list(measures.OFFSETS), **{s: offsets[s] for s in SELF_TYPES}},
        "rare": {"frequent": measures.FREQUENT, **rare.about()},
    }


def syntax(trained: Trained, trees: Sequence[Tree], name: str) -> dict[str, Any]:
    """Measure the accuracy of syntactic relations; only the encoder reads the trees' sentences."""
    model, dictionary = trained.model, trained.task.source_dictionary
    longest = min(trained.task.max_positions()[0], model.max_positions()[0])
    max_tokens = trained.cfg.dataset.max_tokens or MAX_TOKENS
    read = [tree for tree in trees if tree.symbols]
    if not read:
        raise UserError("has no sentence", "--conllu", f"give another file than {name}")
    fitting = [tree for tree in read if len(tree.symbols) < longest]  # and the end of sentence
    if not fitting:
        raise UserError("no sentence is short enough for the model", "--conllu")
    say_if_unknown([tree.symbols for tree in fitting], dictionary)
    scores = SyntaxScores()
    for batch in bar("syntax", list(tree_batches(fitting, max_tokens))):
        sample = to_device(as_sample(batch, dictionary), trained.device)
        scores.add(attend(model, sample), batch)
    counts = {"sentences": len(fitting), "too_long": len(read) - len(fitting)}
    return {"syntax": {"trees": name, **counts, "relations": scores.result()}}


def importance(trained: Trained, subset: str) -> dict[str, Any]:
    """Measure the gradient importance on all sentences of a subset."""
    by_type = gradient_importance(trained.model, batches(trained, subset))
    return {"measures": {"importance": by_type}}


def price(trained: Trained, subset: str, sentences: int) -> dict[str, Any]:
    """Predict the price of each head, in bits per target token, on at most ``sentences``."""
    read = samples(trained, subset, sentences)
    statistics, number = collect(trained, read), sum(len(batch["target"]) for batch in read)
    prices = {
        type_: [head_prices(attention.module, statistics[attention]) for attention in layers]
        for type_, layers in trained.attentions.items()
    }
    return {"measures": {"price": prices}, "price": {"sentences": number}}


def relevance(total: Relevance, trained: Trained, subset: str, number: int) -> dict[str, Any]:
    """Relevance on ``number`` random sentences of a subset."""
    indices = fitting(trained, subset)
    generator = torch.Generator().manual_seed(1)
    chosen = [indices[i] for i in torch.randperm(len(indices), generator=generator)[:number]]
    for sample in batches(trained, subset, chosen, max_sentences=1, name="relevance"):
        total.add(sample)
    return {
        "measures": {"relevance": total.means.result()},
        "relevance": {"sentences": len(chosen), "lost": total.deviation},
    }
