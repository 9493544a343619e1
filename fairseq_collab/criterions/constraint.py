"""The group constraint as a training loss (Ni et al. 2023, arXiv 2305.14380).

    L = Lt + Lz,    Lz = - alpha mean cos(head, its centre) + beta mean cos(centre, other centre)

``Lt`` is any loss.  :mod:`.clusters` computes ``Lz`` from Gram matrices; this module collects them
from a model.

fairseq sums ``Lt`` over the batch and divides by the sample size (the number of target tokens, or
of sentences with ``--sentence-avg``) afterwards.  ``Lz`` is therefore multiplied by

    released    the number of attentions: a sum over attentions, added to a sum over tokens, as in
                the paper's released code; alpha and beta mean less the larger a batch on one
                device is (--update-freq and further devices add to both sums)
    paper       the sample size: a mean over attentions, added to a mean over tokens

The paper's results were made with the released code.  For its setting of IWSLT14, 18 attentions and
batches of 30,080 tokens, ``released`` is 18/30,080 = 1/1,671 of ``paper``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from fairseq.distributed import utils as distributed
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention.head_groups import HeadGroupAttention, head_group_attentions
from fairseq_collab.criterions import clusters

#: Measures of one batch by their names in the log: scalars, means over attentions.
MEASURES = (
    "group_within",  # cosine of a head and its centre
    "group_between",  # cosine of two centres
)


class Padding(NamedTuple):
    """The padding of a batch, ``(B, S)`` and ``(B, T)``."""

    source: Tensor
    target: Tensor

    def of(self, attention: HeadGroupAttention) -> Tensor:
        """Return the padding along the positions of an attention's features."""
        # Values are features of keys; weights and outputs are features of queries.
        of_source = attention.attention_type == "encoder" or (
            attention.attention_type == "cross" and attention.feature == "value"
        )
        return self.source if of_source else self.target


def padding_of(net_input: dict[str, Any], symbol: int) -> Padding:
    """Find the padding ``symbol`` in the inputs of a translation or language model."""
    source = net_input["src_tokens"]
    return Padding(source.eq(symbol), net_input.get("prev_output_tokens", source).eq(symbol))


@contextmanager
def watched(model: nn.Module) -> Iterator[list[HeadGroupAttention]]:
    """Make the attentions of ``model`` keep the features of their heads within the context."""
    attentions = head_group_attentions(model)
    if not attentions:
        raise UserError(
            "the criterion needs a model with groups of heads",
            todo="give --arch transformer_grouped_heads, or a criterion without head groups",
        )
    handles = [attention.watch() for attention in attentions]
    try:
        yield attentions
    finally:
        for handle in handles:
            handle.remove()


def gram_matrices(attentions: Sequence[HeadGroupAttention], padding: Padding) -> list[Tensor]:
    """Compute the Gram matrix ``(H, H)`` of every attention, and release its features."""
    grams = []
    for attention in attentions:
        if attention.features is None:
            raise UserError(
                "a layer was skipped, and its heads have no features",
                todo="train head groups without --encoder-layerdrop and --decoder-layerdrop",
            )
        grams.append(clusters.gram_matrix(attention.features, padding.of(attention)))
        attention.features = None
    return grams


def constrain(attentions: Sequence[HeadGroupAttention], padding: Padding) -> dict[str, Tensor]:
    """Update the groups from the features of a training batch, and return :data:`MEASURES`."""
    grams = gram_matrices(attentions, padding)
    if not all(gram.requires_grad for gram in grams):
        raise UserError(
            "the heads' features have no gradient",
            todo="train head groups without --checkpoint-activations",
        )
    sums: list[Tensor] = []
    for indices in equal_sizes(attentions):
        gram = torch.stack([grams[i] for i in indices])
        membership = regroup([attentions[i] for i in indices], gram.detach())
        terms = clusters.similarity(gram, membership)
        sums.append(torch.stack([term.sum() for term in terms]))
    means = torch.stack(sums).sum(dim=0) / len(attentions)
    return dict(zip(MEASURES, means.unbind(), strict=True))


def regroup(attentions: Sequence[HeadGroupAttention], gram: Tensor) -> Tensor:
    """Continue k-means from the attentions' groups; store and return membership ``(L, H, C)``.

    All processes of a training average their Gram matrices, so that their groups are equal.

    Args:
        gram: ``(L, H, H)``, without gradient.
    """
    ranks = distributed.get_data_parallel_world_size()
    if ranks > 1:
        gram = gram.clone()
        distributed.all_reduce(gram, group=distributed.get_data_parallel_group())
        gram = gram / ranks
    before = torch.stack([attention.membership for attention in attentions]).to(gram.dtype)
    after = clusters.cluster(gram, before)
    for attention, membership in zip(attentions, after, strict=True):
        attention.membership.copy_(membership)
    return after


def equal_sizes(attentions: Sequence[HeadGroupAttention]) -> list[list[int]]:
    """Group the indices of attentions by numbers of heads and groups, to be computed at once."""
    by_size: dict[tuple[int, int], list[int]] = {}
    for index, attention in enumerate(attentions):
        by_size.setdefault((attention.num_heads, attention.groups), []).append(index)
    return list(by_size.values())
