"""Whether an encoder head looks from a word to one that it is in a syntactic relation with.

    accuracy = share of pairs (i, j) of a relation with  argmax_v w_iv = j,
    w_uv     = mean over subwords t of u, sum over subwords s of v, of a_ts

``a_ts`` is a head's weight; ``u`` and ``v`` are words, not the end of sentence.  Each relation is
scored from the dependent to its head, and from the head to its dependent.  The baseline always
looks at one distance in words, the distance that is right most often for these pairs.

Voita et al. 2019 (arXiv 1905.09418), section 5.2; from subwords to words as Clark et al. 2019
(arXiv 1906.04341), section 4.  Gold trees (Universal Dependencies) replace the paper's CoreNLP
parses, and ``obj`` its ``dobj``.

Shapes: ``B`` sentences, ``H`` heads, ``S`` subwords, ``U`` words, ``P`` pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from collab_lab.heads.attention_weights import AttentionBatch, Means
from collab_lab.heads.trees import Tree

#: The paper's relations, by their names in Universal Dependencies; nsubj includes nsubj:pass.
RELATIONS = ("nsubj", "obj", "amod", "advmod")
DIRECTIONS = ("dependent->head", "head->dependent")
#: Number of the sentence, and the words that a pair goes from and to.
WordPair = tuple[int, int, int]


class SyntaxScores:
    """The accuracies of all encoder heads for :data:`RELATIONS`, in both directions."""

    def __init__(self) -> None:
        self._right = {key: Means(["encoder"]) for key in product(RELATIONS, DIRECTIONS)}
        self._offsets: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)

    def add(self, batch: AttentionBatch, trees: Sequence[Tree]) -> None:
        """Score a batch whose sentences are those of ``trees``, padded on the right."""
        pairs = {key: list(_pairs(trees, *key)) for key in self._right}
        for key, of_key in pairs.items():
            self._offsets[key].update(end - start for _, start, end in of_key)
        members = membership(trees, batch.source)  # (B, S, U)
        for layer, weights in enumerate(batch.weights["encoder"]):
            largest = word_attention(weights, members).argmax(-1)  # (B, H, U)
            for key, of_key in pairs.items():
                self._right[key].add("encoder", layer, right_heads(largest, of_key), len(of_key))

    def result(self) -> dict[str, dict[str, Any]]:
        """The number of pairs, the baseline and each head's accuracy, by relation and direction."""
        scores: dict[str, dict[str, Any]] = defaultdict(dict)
        for (relation, direction), right in self._right.items():
            offsets = self._offsets[relation, direction]
            scores[relation][direction] = {
                "pairs": offsets.total(),
                "baseline": baseline(offsets),
                "encoder": right.result()["encoder"],
            }
        return dict(scores)


def _pairs(trees: Sequence[Tree], relation: str, direction: str) -> Iterator[WordPair]:
    for number, tree in enumerate(trees):
        for name, dependent, head in tree.pairs:
            if name.partition(":")[0] == relation:
                ends = (dependent, head) if direction == DIRECTIONS[0] else (head, dependent)
                yield number, *ends


def baseline(offsets: Counter[int]) -> dict[str, Any]:
    """The distance that is right most often, and its share of the pairs."""
    if not offsets:
        return {"offset": None, "accuracy": None}
    [(best, right)] = offsets.most_common(1)
    return {"offset": best, "accuracy": right / offsets.total()}


def membership(trees: Sequence[Tree], tokens: Tensor) -> Tensor:
    """Mask of the subwords that are part of a word: ``(B, S, U)``; ``</s>`` is not part of any."""
    units = max(max(tree.units) for tree in trees) + 1
    members = torch.zeros(*tokens.shape, units)
    for number, tree in enumerate(trees):
        members[number, torch.arange(len(tree.units)), tree.units] = 1
    return members.to(tokens.device)


def word_attention(weights: Tensor, members: Tensor) -> Tensor:
    """The weights between words ``(B, H, U, U)``; below 0 for absent words.

    Shapes: ``weights (B, H, S, S)``, ``members (B, S, U)``.
    """
    members = members.to(weights.dtype)
    subwords = members.sum(1)  # (B, U)
    queries = (members / subwords.clamp_min(1)[:, None]).transpose(1, 2)  # (B, U, S)
    attention = queries[:, None] @ weights @ members[:, None]  # (B, H, U, U)
    return attention.masked_fill(subwords.eq(0)[:, None, None, :], -1.0)


def right_heads(largest: Tensor, pairs: Sequence[WordPair]) -> Tensor:
    """The number of pairs for which each head looks at the right word: ``(B, H, U) -> (H)``."""
    indices = torch.tensor(pairs, dtype=torch.long, device=largest.device)
    sentence, start, end = indices.view(-1, 3).unbind(1)  # (P) each
    return (largest[sentence, :, start] == end[:, None]).sum(0)


def tree_batches(trees: Sequence[Tree], max_tokens: int) -> Iterator[list[Tree]]:
    """Yield batches of trees of similar length, with at most ``max_tokens`` including padding."""
    batch: list[Tree] = []
    for tree in sorted(trees, key=lambda tree: len(tree.symbols)):  # the last is the longest
        if batch and (len(batch) + 1) * (len(tree.symbols) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(tree)
    if batch:
        yield batch


def as_sample(trees: Sequence[Tree], dictionary: Dictionary) -> dict[str, Any]:
    """The encoder's input for a batch, padded on the right."""
    rows = [
        torch.tensor([*map(dictionary.index, tree.symbols), dictionary.eos()]) for tree in trees
    ]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = collate_tokens(rows, dictionary.pad())
    return {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
