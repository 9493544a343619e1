"""What single heads look at: how surely, at which offset, at rare tokens, how widely.

    confidence   mean over words t of    max_s a_ts
    share of k   share of words t with   argmax_s a_ts = t + k      of those with a word at t + k
    rare         share of sentences with argmax_s sum_t a_ts = the rarest token
    entropy      mean over words t of    -sum_s a_ts ln a_ts        in nats

``a_ts`` is a head's weight; the maxima and sums of the first three are over words, without the end
of sentence, which is no token of the text; nor is it a query.  The entropy is of the whole row.

Voita et al. 2019 (arXiv 1905.09418), sections 4 and 5.  Theirs is the confidence without the end of
sentence.  They do not say over what the share of an offset is taken; we leave out words without a
neighbour there, or a head that always looks at the word before would miss the first one of each
sentence, and in short sentences never reach 90 %.  For rare tokens they take sentences whose least
frequent token is not among the 500 most frequent ones, and count how often a head points to it; a
head *points to* the token that has most of its weight, all queries of the sentence together.

Shapes: ``B`` sentences, ``H`` heads, ``T`` queries, ``S`` keys; sums ``(H)`` for each layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_collab.analysis.heads.weights import AttentionBatch, Heads, PerHead
from fairseq_collab.models.layers import SITES, Site

#: Relative positions of keys that are looked at.
OFFSETS = (-3, -2, -1, 0, 1, 2, 3)
#: The sites whose queries and keys are the same sentence.
SELF_SITES: tuple[Site, ...] = ("encoder", "decoder")
#: Tokens that are as frequent as these are not rare.
FREQUENT = 500


class Sums:
    """Sums by head of each layer, and of how much they are sums: for means.

    Args:
        sites: those that are summed over.
        shape: of what is summed for each head.
    """

    def __init__(self, heads: Heads, sites: Iterable[Site], shape: tuple[int, ...] = ()):
        def zeros(site: Site) -> list[Tensor]:
            return [torch.zeros(number, *shape, dtype=torch.float64) for number in heads[site]]

        self.sums = {site: zeros(site) for site in sites}
        self.counts = {site: zeros(site) for site in self.sums}

    def add(self, site: Site, layer: int, values: Tensor, count: Tensor) -> None:
        """Add sums ``(H, ...)``, of so many each: ``count (...)`` or ``(H, ...)``."""
        self.sums[site][layer] += values.double().cpu()
        self.counts[site][layer] += count.double().cpu()

    def means(self) -> dict[Site, list[Any]]:
        """By site and layer, nested lists by head; None where nothing was counted."""
        return {
            site: [
                _listed(total / count) for total, count in zip(sums, self.counts[site], strict=True)
            ]
            for site, sums in self.sums.items()
        }


def _listed(values: Tensor) -> Any:
    """Nested lists of numbers, None in place of NaN."""
    if values.dim():
        return [_listed(value) for value in values]
    return None if values.isnan() else values.item()


def word_weights(batch: AttentionBatch, site: Site, layer: int) -> Tensor:
    """Weights ``(B, H, T, S)`` of keys that are words; those of others are zero."""
    return batch.weights[site][layer] * batch.key_words(site)[:, None, None, :]


class Confidence:
    """The mean of each head's largest weight."""

    def __init__(self, heads: Heads):
        self._sums = Sums(heads, SITES)

    def add(self, batch: AttentionBatch) -> None:
        for site, layers in batch.weights.items():
            rows = batch.query_words(site)  # (B, T)
            for layer in range(len(layers)):
                largest = word_weights(batch, site, layer).amax(-1)  # (B, H, T)
                total = (largest * rows[:, None]).sum((0, 2))  # (H)
                self._sums.add(site, layer, total, rows.sum())

    def result(self) -> PerHead:
        return self._sums.means()


class Entropy:
    """The mean entropy of each head's rows, in nats."""

    def __init__(self, heads: Heads):
        self._sums = Sums(heads, SITES)

    def add(self, batch: AttentionBatch) -> None:
        for site, layers in batch.weights.items():
            rows = batch.query_words(site)  # (B, T)
            for layer, weights in enumerate(layers):
                total = (entropy(weights) * rows[:, None]).sum((0, 2))  # (H)
                self._sums.add(site, layer, total, rows.sum())

    def result(self) -> PerHead:
        return self._sums.means()


def entropy(weights: Tensor) -> Tensor:
    """Entropy over the last dimension, in nats; a weight of zero adds none."""
    return torch.special.entr(weights).sum(-1)


class Positional:
    """How often a word's largest weight is on the word at each offset, in self-attention."""

    def __init__(self, heads: Heads):
        self._sums = Sums(heads, SELF_SITES, (len(OFFSETS),))

    def add(self, batch: AttentionBatch) -> None:
        for site in SELF_SITES:
            for layer in range(len(batch.weights.get(site, []))):
                largest = word_weights(batch, site, layer).argmax(-1)  # (B, H, T)
                self._add(site, layer, largest, batch.query_words(site))

    def _add(self, site: Site, layer: int, largest: Tensor, words: Tensor) -> None:
        positions = torch.arange(words.size(1), device=words.device)
        found, possible = [], []
        for offset in OFFSETS:
            rows = words & shifted(words, offset)  # (B, T)
            on_it = (largest == positions + offset) & rows[:, None]  # (B, H, T)
            found.append(on_it.sum((0, 2)))
            possible.append(rows.sum())
        self._sums.add(site, layer, torch.stack(found, 1), torch.stack(possible))

    def offsets(self) -> dict[Site, list[list[list[float | None]]]]:
        """By site, layer and head: the share for each of :data:`OFFSETS`."""
        return self._sums.means()

    def result(self) -> PerHead:
        """The share of the offset that has most."""
        return {
            site: [[_largest(shares) for shares in layer] for layer in layers]
            for site, layers in self.offsets().items()
        }


def shifted(words: Tensor, offset: int) -> Tensor:
    """Whether there is a word at ``t + offset``: ``(B, T) -> (B, T)``."""
    there = torch.zeros_like(words)
    length = words.size(1)
    start, end = max(0, -offset), min(length, length - offset)
    if start < end:
        there[:, start:end] = words[:, start + offset : end + offset]
    return there


def _largest(shares: list[float | None]) -> float | None:
    return max((share for share in shares if share is not None), default=None)


class RareTokens:
    """How often an encoder head points to the rarest token of a sentence, or one of two rarest.

    The sentences are those whose rarest token is not among the most frequent ones.  Tokens that
    are equally rare all count as the rarest, and an unknown word is rarer than any other.

    Args:
        dictionary: of the source, with how often each symbol is in the training text.
        frequent: how many symbols are frequent.
    """

    def __init__(self, heads: Heads, dictionary: Dictionary, frequent: int = FREQUENT):
        self._pointed = {number: Sums(heads, ["encoder"]) for number in (1, 2)}
        self._chance = dict.fromkeys(self._pointed, 0.0)
        self._counts = symbol_counts(dictionary)  # (symbols)
        in_order = self._counts[dictionary.nspecial :].sort(descending=True).values
        # Of a dictionary that has no more symbols than that, none is rare.
        self._limit = in_order[frequent - 1].item() if len(in_order) > frequent else 0
        self.sentences = 0

    def add(self, batch: AttentionBatch) -> None:
        words = batch.source_words  # (B, S)
        counts = self._counts.to(words.device)[batch.sample["net_input"]["src_tokens"]]
        counts = counts.masked_fill(~words, torch.iinfo(counts.dtype).max)
        chosen = counts.amin(1) < self._limit  # (B)
        self.sentences += int(chosen.sum())
        for number, pointed in self._pointed.items():
            rank = min(number, counts.size(1))
            limit = counts.kthvalue(rank, dim=1, keepdim=True).values  # (B, 1)
            rare = (counts <= limit) & words  # (B, S)
            self._chance[number] += float((rare.sum(1) / words.sum(1))[chosen].sum())
            for layer, weights in enumerate(batch.weights["encoder"]):
                key = pointed_to(weights, words)  # (B, H)
                right = rare.gather(1, key) & chosen[:, None]
                pointed.add("encoder", layer, right.sum(0), chosen.sum())

    def result(self) -> PerHead:
        """The share of sentences where it is the rarest."""
        return self._pointed[1].means()

    def of_two(self) -> PerHead:
        """The share of sentences where it is one of the two rarest."""
        return self._pointed[2].means()

    def about(self) -> dict[str, Any]:
        """How many sentences there were, and what a head that points anywhere would score."""
        chance = {
            number: total / self.sentences if self.sentences else None
            for number, total in self._chance.items()
        }
        return {
            "sentences": self.sentences,
            "chance": chance[1],
            "chance_of_two": chance[2],
        }


def pointed_to(weights: Tensor, words: Tensor) -> Tensor:
    """Which word gets most of the words' weight: ``(B, H, S, S), (B, S) -> (B, H)``."""
    received = (weights * words[:, None, :, None]).sum(2)  # (B, H, S)
    return received.masked_fill(~words[:, None], -1.0).argmax(-1)


def symbol_counts(dictionary: Dictionary) -> Tensor:
    """How often each symbol is in the training text; the unknown word never."""
    counts = torch.tensor(dictionary.count)
    counts[dictionary.unk()] = 0
    return counts


def with_all_sites(measured: Mapping[Site, Any]) -> dict[str, Any]:
    """The same by site, with None for those that a measure does not apply to."""
    return {site: measured.get(site) for site in SITES}
