"""What single heads look at, and how alike the heads of a layer are.

    confidence   mean over words t of    max_s a_ts
    share of k   share of words t with   argmax_s a_ts = t + k      of those with a word at t + k
    rare         share of sentences with argmax_s sum_t a_ts = the rarest token
    entropy      mean over words t of    -sum_s a_ts ln a_ts        in nats
    distance     mean over words t of    sqrt(JSD(a_t^i, a_t^j))    in bits: 0 alike, 1 disjoint
    cosine       <W_i, W_j> / (|W_i| |W_j|),   W_i = A_i B_i^T, the map that scores, without biases

``a_ts`` is a head's weight; the maxima and sums of the first three are over words, without the end
of sentence, which is no token of the text; nor is it a query.  Entropy and distance are of whole
rows.  The distance is Jensen and Shannon's (Endres and Schindelin 2003), a metric.

Voita et al. 2019 (arXiv 1905.09418), sections 4 and 5.  Theirs is the confidence without the end of
sentence.  They do not say over what the share of an offset is taken; we leave out words without a
neighbour there, or a head that always looks at the word before would miss the first one of each
sentence, and in short sentences never reach 90 %.  For rare tokens they take sentences whose least
frequent token is not among the 500 most frequent ones, and count how often a head points to it; a
head *points to* the token that has most of its weight, all queries of the sentence together.

Shapes: ``B`` sentences, ``H`` heads, ``T`` queries, ``S`` keys; factors ``A (H, d, e)``,
``B (H, d_y, e)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor
from torch.nn import functional

from fairseq_collab.analysis.heads.weights import AttentionBatch, Means
from fairseq_collab.analysis.scores import factors
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.trained.attentions import by_site

#: Relative positions of keys that are looked at.
REACH = 3
OFFSETS = tuple(range(-REACH, REACH + 1))
#: The sites whose queries and keys are the same sentence.
SELF_SITES: tuple[Site, ...] = ("encoder", "decoder")
#: Tokens that are as frequent as these are not rare.
FREQUENT = 500

#: Sums ``(H, ...)`` over a batch, for one layer of one site, and of how many each is the sum.
Summed = tuple[Tensor, Tensor]


class Measure(Means):
    """The mean of what ``of`` finds in the layers of a batch."""

    def __init__(
        self, of: Callable[[AttentionBatch, Site, int], Summed], sites: Iterable[Site] = SITES
    ):
        super().__init__(sites)
        self._of = of

    def see(self, batch: AttentionBatch) -> None:
        """Count a batch."""
        for site in self.sites:
            for layer in range(len(batch.weights.get(site, []))):
                self.add(site, layer, *self._of(batch, site, layer))


def word_weights(batch: AttentionBatch, site: Site, layer: int) -> Tensor:
    """Weights ``(B, H, T, S)`` of keys that are words; those of others are zero."""
    return batch.weights[site][layer] * batch.key_words(site)[:, None, None, :]


def over_words(values: Tensor, batch: AttentionBatch, site: Site) -> Summed:
    """Sums over the queries that are words: ``(B, H, T) -> (H)``."""
    rows = batch.query_words(site)  # (B, T)
    return (values * rows[:, None]).sum((0, 2)), rows.sum()


def confidence(batch: AttentionBatch, site: Site, layer: int) -> Summed:
    """Each head's largest weight: ``(H)``."""
    return over_words(word_weights(batch, site, layer).amax(-1), batch, site)


def width(batch: AttentionBatch, site: Site, layer: int) -> Summed:
    """The entropy of each head's rows, in nats: ``(H)``."""
    return over_words(entropy(batch.weights[site][layer]), batch, site)


def entropy(weights: Tensor) -> Tensor:
    """Entropy over the last dimension, in nats; a weight of zero adds none."""
    return torch.special.entr(weights).sum(-1)


# ---- positions, in self-attention ----------------------------------------------------------------


def positions(batch: AttentionBatch, site: Site, layer: int) -> Summed:
    """How many words look at each offset, and how many could: ``(H, 7)`` of ``(7)``."""
    words = batch.query_words(site)  # (B, T)
    largest = word_weights(batch, site, layer).argmax(-1)  # (B, H, T)
    distance = largest - torch.arange(words.size(1), device=words.device)
    rows = words[..., None] & neighbours(words)  # (B, T, 7)
    looks = distance[..., None] == torch.tensor(OFFSETS, device=words.device)  # (B, H, T, 7)
    return (looks & rows[:, None]).sum((0, 2)), rows.sum((0, 1))


def neighbours(words: Tensor) -> Tensor:
    """Whether there is a word at each offset from ``t``: ``(B, T) -> (B, T, 7)``."""
    return functional.pad(words, (REACH, REACH)).unfold(1, len(OFFSETS), 1)


def best_shares(offsets: dict[Site, Any]) -> dict[Site, Any]:
    """The share of the offset that each head looks at most, from the shares of all offsets."""

    def best(shares: list[float | None]) -> float | None:
        return max((share for share in shares if share is not None), default=None)

    return {
        site: None if layers is None else [[best(head) for head in layer] for layer in layers]
        for site, layers in offsets.items()
    }


# ---- rare tokens ---------------------------------------------------------------------------------


class RareTokens:
    """How often an encoder head points to the rarest token of a sentence, or one of two rarest.

    The sentences are those whose rarest token is not among the ``frequent`` most frequent ones.
    Tokens that are equally rare all count as the rarest, and an unknown word is rarer than any
    other.
    """

    def __init__(self, dictionary: Dictionary, frequent: int = FREQUENT):
        #: By how many tokens count as the rarest.
        self.pointed = {number: Means(["encoder"]) for number in (1, 2)}
        self._chance = dict.fromkeys(self.pointed, 0.0)
        self._counts = torch.tensor(dictionary.count)  # (symbols)
        self._counts[dictionary.unk()] = 0
        in_order = self._counts[dictionary.nspecial :].sort(descending=True).values
        # Of a dictionary that has no more symbols than that, none is rare.
        self._limit = in_order[frequent - 1].item() if len(in_order) > frequent else 0
        self.sentences = 0

    def see(self, batch: AttentionBatch) -> None:
        """Count a batch; of a language model nothing, which has no source."""
        if "encoder" not in batch.weights:
            return
        words = batch.key_words("encoder")  # (B, S)
        counts = self._counts.to(words.device)[batch.source]
        counts = counts.masked_fill(~words, torch.iinfo(counts.dtype).max)
        chosen = counts.amin(1) < self._limit  # (B)
        self.sentences += int(chosen.sum())
        for number, pointed in self.pointed.items():
            rank = min(number, counts.size(1))
            limit = counts.kthvalue(rank, dim=1, keepdim=True).values  # (B, 1)
            rare = (counts <= limit) & words  # (B, S)
            self._chance[number] += float((rare.sum(1) / words.sum(1))[chosen].sum())
            for layer, weights in enumerate(batch.weights["encoder"]):
                key = pointed_to(weights, words)  # (B, H)
                right = rare.gather(1, key) & chosen[:, None]
                pointed.add("encoder", layer, right.sum(0), chosen.sum())

    def about(self) -> dict[str, Any]:
        """How many sentences there were, and what a head that points anywhere would score."""
        one, two = (
            total / self.sentences if self.sentences else None for total in self._chance.values()
        )
        return {"sentences": self.sentences, "chance": one, "chance_of_two": two}


def pointed_to(weights: Tensor, words: Tensor) -> Tensor:
    """Which word gets most of the words' weight: ``(B, H, S, S), (B, S) -> (B, H)``."""
    received = (weights * words[:, None, :, None]).sum(2)  # (B, H, S)
    return received.masked_fill(~words[:, None], -1.0).argmax(-1)


# ---- likeness ------------------------------------------------------------------------------------


def distance(batch: AttentionBatch, site: Site, layer: int) -> Summed:
    """The Jensen-Shannon distance between the rows of each two heads: ``(H, H)``."""
    rows = batch.query_words(site)  # (B, T)
    # Only what is counted is computed: padding would be most of some batches.
    chosen = batch.weights[site][layer].transpose(1, 2)[rows]  # (N, H, S)
    return distances(chosen).sum(0), rows.sum()


def distances(weights: Tensor) -> Tensor:
    """Jensen-Shannon distances of the heads of each row: ``(N, H, S) -> (N, H, H)``."""
    own = entropy(weights)  # (N, H)
    found = weights.new_zeros(*own.shape, own.size(1))
    for i in range(own.size(1) - 1):  # one head against those after it: all pairs take much memory
        middle = entropy((weights[:, i : i + 1] + weights[:, i + 1 :]) / 2)  # (N, H - i - 1)
        divergence = (middle - (own[:, i : i + 1] + own[:, i + 1 :]) / 2) / math.log(2)
        distance = divergence.clamp(0, 1).sqrt()  # rounding may leave the range
        found[:, i, i + 1 :] = found[:, i + 1 :, i] = distance
    return found


def projection_cosines(model: Any) -> dict[Site, list[list[list[float]]]]:
    """The cosines of the heads' key/query maps: ``H x H`` lists by site and layer."""

    def of(module: Any) -> list[list[float]]:
        a, b = (factor[:, :-1].double() for factor in factors(module))  # biases apart
        return cosines(a, b).tolist()

    with torch.inference_mode():
        return {site: [of(one.module) for one in found] for site, found in by_site(model).items()}


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of the maps ``A_i B_i^T``, which are never formed: ``(H, d, e) -> (H, H)``.

    ``<A_i B_i^T, A_j B_j^T> = sum((A_i^T A_j) * (B_i^T B_j))``
    """
    products = torch.stack(
        [((a_i.T @ a) * (b_i.T @ b)).sum((1, 2)) for a_i, b_i in zip(a, b, strict=True)]
    )  # (H, H)
    norms = products.diagonal().clamp_min(0).sqrt()
    # Of a map that is zero, nothing is alike.
    scale = (norms[:, None] * norms).clamp_min(torch.finfo(products.dtype).tiny)
    return (products / scale).clamp(-1, 1)
