"""Whether an encoder head looks from a word to the one it is in a syntactic relation with.

    accuracy = share of pairs (i, j) of a relation with  argmax_v w_iv = j,
    w_uv     = mean over subwords t of u, sum over subwords s of v, of a_ts

``a_ts`` is a head's weight; ``u``, ``v`` are words, the end of sentence is none.  Each relation is
scored from the dependent to its head, and from the head to its dependent.  The baseline looks
always at the same distance in words, the one that is right most often for just these pairs.

Voita et al. 2019 (arXiv 1905.09418), section 5.2; from subwords to words as Clark et al. 2019
(arXiv 1906.04341), section 4.  Gold trees (Universal Dependencies) stand for the paper's CoreNLP
parses, and so ``obj`` for ``dobj``.

Shapes: ``B`` sentences, ``H`` heads, ``S`` subwords, ``U`` words, ``P`` pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from fairseq_collab.analysis.heads.conllu import Sentence
from fairseq_collab.analysis.heads.subwords import Segmenter, Tree, align
from fairseq_collab.analysis.heads.weights import AttentionBatch, Heads

#: The paper's relations, by their names in Universal Dependencies.
RELATIONS = ("nsubj", "obj", "amod", "advmod")
DIRECTIONS = ("dependent->head", "head->dependent")
#: So many sentences are sorted by length at a time, to be batched without much padding.
POOL = 2048


class Pair(NamedTuple):
    """From one word of a sentence to another."""

    sentence: int
    start: int
    end: int


class SyntaxScores:
    """Accuracies of all encoder heads, for some relations in both directions.

    Args:
        relations: such as ``nsubj``, which takes ``nsubj:pass`` in, or ``nsubj:pass`` alone.
    """

    def __init__(self, heads: Heads, relations: Sequence[str] = RELATIONS):
        self._heads = heads["encoder"]
        self._relations = relations
        places = [(relation, direction) for relation in relations for direction in DIRECTIONS]
        self._right = {
            place: [torch.zeros(number, dtype=torch.int64) for number in self._heads]
            for place in places
        }
        self._offsets: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self.sentences = 0
        self.lost = 0

    def add(self, batch: AttentionBatch, trees: Sequence[Tree]) -> None:
        """Score a batch whose sentences are those of ``trees``, padded on the right."""
        self.sentences += len(trees)
        self.lost += sum(tree.lost for tree in trees)
        pairs = {place: list(self._pairs(trees, *place)) for place in self._right}
        for place, found in pairs.items():
            self._offsets[place].update(pair.end - pair.start for pair in found)
        members = membership(trees, batch.source_padding)  # (B, S, U)
        for layer, weights in enumerate(batch.weights["encoder"]):
            largest = word_attention(weights, members).argmax(-1)  # (B, H, U)
            for place, found in pairs.items():
                if found:
                    self._right[place][layer] += right_heads(largest, found).cpu()

    def _pairs(self, trees: Sequence[Tree], relation: str, direction: str) -> Iterator[Pair]:
        for number, tree in enumerate(trees):
            for name, dependent, head in tree.pairs:
                if name == relation or name.startswith(f"{relation}:"):
                    ends = (dependent, head) if direction == DIRECTIONS[0] else (head, dependent)
                    yield Pair(number, *ends)

    def result(self) -> dict[str, dict[str, Any]]:
        """By relation and direction: how many pairs, the baseline, and accuracies by head."""
        found: dict[str, dict[str, Any]] = {relation: {} for relation in self._relations}
        for (relation, direction), layers in self._right.items():
            offsets = self._offsets[relation, direction]
            pairs = offsets.total()
            found[relation][direction] = {
                "pairs": pairs,
                "baseline": baseline(offsets),
                "encoder": [
                    (right.double() / pairs).tolist() if pairs else [None] * len(right)
                    for right in layers
                ],
            }
        return found


def baseline(offsets: Mapping[int, int]) -> dict[str, Any]:
    """The distance that is right most often, and for which share of the pairs."""
    if not offsets:
        return {"offset": None, "accuracy": None}
    best = max(offsets, key=lambda offset: (offsets[offset], -abs(offset), offset))
    return {"offset": best, "accuracy": offsets[best] / sum(offsets.values())}


def membership(trees: Sequence[Tree], padding: Tensor) -> Tensor:
    """Which subword is of which word: ``(B, S, U)`` of 0 and 1; the end of sentence is of none."""
    units = max(max(tree.units) for tree in trees) + 1
    members = torch.zeros(*padding.shape, units)
    for number, tree in enumerate(trees):
        members[number, torch.arange(len(tree.units)), tree.units] = 1
    return members.to(padding.device)


def word_attention(weights: Tensor, members: Tensor) -> Tensor:
    """Weights between words, below 0 for words that are none: ``(B, H, U, U)``.

    Shapes: ``weights (B, H, S, S)``, ``members (B, S, U)``.
    """
    members = members.to(weights.dtype)
    sizes = members.sum(1)  # (B, U)
    queries = (members / sizes.clamp_min(1)[:, None]).transpose(1, 2)  # (B, U, S)
    attention = queries[:, None] @ weights @ members[:, None]  # (B, H, U, U)
    return attention.masked_fill(sizes.eq(0)[:, None, None, :], -1.0)


def right_heads(largest: Tensor, pairs: Sequence[Pair]) -> Tensor:
    """For how many pairs each head looks at the right word: ``(B, H, U) -> (H)``."""
    sentence, start, end = torch.tensor(pairs, device=largest.device).unbind(1)  # (P) each
    return (largest[sentence, :, start] == end[:, None]).sum(0)


class TreeBatch(NamedTuple):
    """What the encoder reads of a batch, and the trees of its sentences."""

    sample: dict[str, Any]
    trees: list[Tree]


class TreeBatches:
    """The sentences of a treebank, segmented, in batches of similar length.

    Args:
        longest: how many tokens a sentence may have, the end of sentence included; others are left
            out, and counted in ``too_long``.
        max_tokens: of a batch, padding included.
    """

    def __init__(
        self,
        sentences: Iterable[Sentence],
        segment: Segmenter,
        dictionary: Dictionary,
        longest: int,
        max_tokens: int,
    ):
        self._sentences, self._segment = iter(sentences), segment
        self._dictionary = dictionary
        self._longest, self._max_tokens = longest, max_tokens
        self.too_long = 0
        self.tokens = 0
        self.unknown = 0

    def __iter__(self) -> Iterator[TreeBatch]:
        while pool := list(islice(self._sentences, POOL)):
            trees = [tree for sentence in pool if (tree := align(sentence, self._segment)).symbols]
            fitting = [tree for tree in trees if len(tree.symbols) < self._longest]
            self.too_long += len(trees) - len(fitting)
            fitting.sort(key=lambda tree: len(tree.symbols))
            for batch in self._batches(fitting):
                yield TreeBatch(self._sample(batch), batch)

    def _batches(self, trees: Sequence[Tree]) -> Iterator[list[Tree]]:
        """Sorted by length: the last of a batch is its longest."""
        batch: list[Tree] = []
        for tree in trees:
            if batch and (len(batch) + 1) * (len(tree.symbols) + 1) > self._max_tokens:
                yield batch
                batch = []
            batch.append(tree)
        if batch:
            yield batch

    def _sample(self, trees: Sequence[Tree]) -> dict[str, Any]:
        dictionary = self._dictionary
        rows = [
            torch.tensor([*map(dictionary.index, tree.symbols), dictionary.eos()]) for tree in trees
        ]
        tokens = collate_tokens(rows, dictionary.pad())
        self.tokens += sum(len(tree.symbols) for tree in trees)
        self.unknown += int(tokens.eq(dictionary.unk()).sum())
        lengths = torch.tensor([len(row) for row in rows])
        return {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
