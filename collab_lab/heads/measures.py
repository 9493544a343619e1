"""Measures of where single heads look, and the roles of heads.

    confidence   mean over words t of    max_s a_ts
    share of k   share of words t with   argmax_s a_ts = t + k      of those with a word at t + k
    rare         share of sentences with argmax_s sum_t a_ts = one of the two rarest tokens

``a_ts`` is a head's weight.  Maxima and sums are over words.  The end of sentence does not count,
neither as a token nor as a query.

The measures are those of Voita et al. 2019 (arXiv 1905.09418), sections 4 and 5.  The paper does
not say over which words the share of an offset is taken.  We leave out words without a neighbour at
that offset: otherwise a head that always looks at the previous word would miss the first word of
each sentence.  For rare tokens, the paper uses sentences whose least frequent token is not among
the 500 most frequent ones.  A head *points to* the token that gets most of its weight, summed over
all queries of the sentence.

Roles of a head (section 5 of the paper):

- *positional*: the largest weight is on one relative position at least 90% of the time;
- *syntactic*: the accuracy of a relation is at least 10% higher than the baseline's.  We read it
  as 10% of the baseline (0.495 for 0.45).  Relations with fewer than 100 pairs do not give a role,
  because their standard error may already be 0.05;
- *rare tokens*: the paper names no threshold.  Its heads point to one of the two rarest tokens in
  more than half of the sentences.  We ask for that, and for more than twice the share by chance.

Shapes: ``B`` sentences, ``H`` heads, ``T`` queries, ``S`` keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor
from torch.nn import functional

from collab_common import ATTENTION_TYPES, AttentionType
from collab_lab.heads.attention_weights import AttentionBatch, Means
from collab_lab.trained.attentions import HeadCounts

#: Relative positions of keys.
REACH = 3
OFFSETS = tuple(range(-REACH, REACH + 1))
#: The attention types whose queries and keys are of one sentence.
SELF_TYPES: tuple[AttentionType, ...] = ("encoder", "decoder")
#: The number of most frequent tokens that are not rare.
FREQUENT = 500

POSITIONAL_SHARE = 0.9
SYNTACTIC_GAIN, SYNTACTIC_PAIRS = 1.1, 100
RARE_SHARE, RARE_GAIN = 0.5, 2.0
#: Attention type, layer, number.
Head = tuple[AttentionType, int, int]
#: Sums ``(H, ...)`` over a batch for one layer, and the number of summands.
Summed = tuple[Tensor, Tensor]


class Measure(Means):
    """The mean over batches of ``of(batch, attention type, layer)``."""

    def __init__(
        self,
        measured: Callable[[AttentionBatch, AttentionType, int], Summed],
        types: Iterable[AttentionType] = ATTENTION_TYPES,
    ):
        super().__init__(types)
        self._of = measured

    def see(self, batch: AttentionBatch) -> None:
        """Add a batch."""
        for type_ in self.types:
            for layer in range(len(batch.weights.get(type_, []))):
                self.add(type_, layer, *self._of(batch, type_, layer))


def word_weights(batch: AttentionBatch, type_: AttentionType, layer: int) -> Tensor:
    """The weights ``(B, H, T, S)`` with zeros for keys that are not words."""
    return batch.weights[type_][layer] * batch.key_words(type_)[:, None, None, :]


def confidence(batch: AttentionBatch, type_: AttentionType, layer: int) -> Summed:
    """Each head's largest weight, summed over queries that are words ``(H)``, and their number."""
    rows = batch.query_words(type_)  # (B, T)
    largest = word_weights(batch, type_, layer).amax(-1)  # (B, H, T)
    return (largest * rows[:, None]).sum((0, 2)), rows.sum()


# ---- positions, in self-attention ----------------------------------------------------------------


def positions(batch: AttentionBatch, type_: AttentionType, layer: int) -> Summed:
    """How many words look at each offset ``(H, 7)``, and how many have a word there ``(7)``."""
    words = batch.query_words(type_)  # (B, T)
    largest = word_weights(batch, type_, layer).argmax(-1)  # (B, H, T)
    distance = largest - torch.arange(words.size(1), device=words.device)
    rows = words[..., None] & neighbours(words)  # (B, T, 7)
    looks = distance[..., None] == torch.tensor(OFFSETS, device=words.device)  # (B, H, T, 7)
    return (looks & rows[:, None]).sum((0, 2)), rows.sum((0, 1))


def neighbours(words: Tensor) -> Tensor:
    """Whether there is a word at each offset from ``t``: ``(B, T) -> (B, T, 7)``."""
    return functional.pad(words, (REACH, REACH)).unfold(1, len(OFFSETS), 1)


def best_shares(offsets: dict[AttentionType, Any]) -> dict[AttentionType, Any]:
    """Each head's largest share among those of all offsets."""

    def best(shares: list[float | None]) -> float | None:
        return max((share for share in shares if share is not None), default=None)

    return {
        type_: None if layers is None else [[best(head) for head in layer] for layer in layers]
        for type_, layers in offsets.items()
    }


# ---- rare tokens ---------------------------------------------------------------------------------


class RareTokens:
    """The share of sentences where an encoder head points to one of the two rarest tokens.

    A sentence counts if its rarest token is not among the ``frequent`` most frequent ones.  Equally
    rare tokens all count.  An unknown word is rarer than any other.  The dictionary has the counts:
    those of both languages together, if they share it.
    """

    def __init__(self, dictionary: Dictionary, frequent: int = FREQUENT):
        self.pointed = Means(["encoder"])
        self.sentences, self._chance = 0, 0.0
        self._counts = torch.tensor(dictionary.count)  # (symbols)
        self._counts[dictionary.unk()] = 0
        in_order = self._counts[dictionary.nspecial :].sort(descending=True).values
        # In a dictionary with no more symbols than that, none is rare.
        self._limit = in_order[frequent - 1].item() if len(in_order) > frequent else 0

    def see(self, batch: AttentionBatch) -> None:
        """Add a batch; for a language model, which has no source, do nothing."""
        if "encoder" not in batch.weights:
            return
        words = batch.key_words("encoder")  # (B, S)
        counts = self._counts.to(words.device)[batch.source]
        counts = counts.masked_fill(~words, torch.iinfo(counts.dtype).max)
        chosen = counts.amin(1) < self._limit  # (B)
        limit = counts.kthvalue(min(2, counts.size(1)), dim=1, keepdim=True).values  # (B, 1)
        rare = (counts <= limit) & words  # (B, S)
        self.sentences += int(chosen.sum())
        self._chance += float((rare.sum(1) / words.sum(1))[chosen].sum())
        for layer, weights in enumerate(batch.weights["encoder"]):
            right = rare.gather(1, pointed_to(weights, words)) & chosen[:, None]  # (B, H)
            self.pointed.add("encoder", layer, right.sum(0), chosen.sum())

    def about(self) -> dict[str, Any]:
        """The number of sentences, and the share to expect of a head that points at random."""
        chance = self._chance / self.sentences if self.sentences else None
        return {"sentences": self.sentences, "chance": chance}


def pointed_to(weights: Tensor, words: Tensor) -> Tensor:
    """The word that gets the most weight from all words: ``(B, H, S, S), (B, S) -> (B, H)``."""
    received = (weights * words[:, None, :, None]).sum(2)  # (B, H, S)
    return received.masked_fill(~words[:, None], -1.0).argmax(-1)


# ---- roles --------------------------------------------------------------------------------------


def roles(
    content: Mapping[str, Any], heads: HeadCounts
) -> dict[AttentionType, list[list[list[str]]]]:
    """The names of each head's roles, derived from the other parts of ``heads.json``."""
    measures, relations = content["measures"], (content.get("syntax") or {}).get("relations", {})

    def roles_of(head: Head) -> list[str]:
        return [
            *positional(content["offsets"], head),
            *syntactic(relations, head),
            *rare(measures["rare"], content["rare"]["chance"], head),
        ]

    return {
        type_: [
            [roles_of((type_, layer, head)) for head in range(number)]
            for layer, number in enumerate(heads[type_])
        ]
        for type_ in ATTENTION_TYPES
    }


def positional(offsets: Mapping[str, Any], head: Head) -> Iterator[str]:
    """The head's positional roles, such as ``positional -1``."""
    for offset, share in zip(offsets["offsets"], _at(offsets, head) or (), strict=False):
        if (share or 0) >= POSITIONAL_SHARE:
            yield f"positional {offset:+d}" if offset else "positional 0"


def syntactic(relations: Mapping[str, Any], head: Head) -> Iterator[str]:
    """The head's syntactic roles, such as ``syntactic nsubj dependent->head``."""
    for relation, directions in relations.items():
        for direction, scores in directions.items():
            accuracy = _at(scores, head)
            if accuracy is None or scores["pairs"] < SYNTACTIC_PAIRS:
                continue
            if accuracy >= SYNTACTIC_GAIN * scores["baseline"]["accuracy"]:
                yield f"syntactic {relation} {direction}"


def rare(shares: Mapping[str, Any], chance: float | None, head: Head) -> Iterator[str]:
    """The role ``rare tokens``, if the head has it."""
    share = _at(shares, head)
    if share and chance is not None and share > max(RARE_SHARE, RARE_GAIN * chance):
        yield "rare tokens"


def _at(measured: Mapping[str, Any], head: Head) -> Any:
    """The measure of a head, or None."""
    type_, layer, number = head
    layers = measured.get(type_)
    return None if layers is None else layers[layer][number]
