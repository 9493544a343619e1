"""The group constraint of grouped head attention as a part of a training loss (arXiv 2305.14380).

    L = Lt + Lz,    Lz = - alpha mean cos(head, its centre) + beta mean cos(centre, other centre)

``Lt`` is any loss.  What ``Lz`` is, and how it is computed from Gram matrices of ``H x H`` numbers,
says :mod:`fairseq_collab.attention.groups`; here are the model, the batch and the log.

fairseq sums ``Lt`` over the batch and divides by the sample size (the number of target tokens)
afterwards, so ``Lz`` is multiplied by

    released    the number of attentions: their sum beside a sum over tokens, as in the paper's
                released code, where alpha and beta mean less the larger a batch is (what one
                device computes at once: --update-freq and several devices add to both sums)
    paper       the sample size: a mean over attentions beside a mean over tokens, as in the paper

The paper's results were made with the released code.  For 18 attentions and batches of 30,080
tokens, its setting of IWSLT14, ``released`` is 18/30,080 = 1/1,671 of ``paper``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from fairseq.distributed import utils as distributed
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention import groups
from fairseq_collab.attention.head_groups import HeadGroupAttention, head_group_attentions


class Padding(NamedTuple):
    """Where a batch is padded, ``(B, S)`` and ``(B, T)``."""

    source: Tensor
    target: Tensor

    def of(self, attention: HeadGroupAttention) -> Tensor:
        """The padding along the positions of an attention's features."""
        if attention.site == "encoder":
            return self.source
        if attention.site == "cross" and attention.positions_are_keys():
            return self.source
        return self.target


#: What one batch says of the groups, by its name in the log; scalars, means over attentions.
MEASURES = (
    "group_within",  # cosine of a head and its centre
    "group_between",  # cosine of two centres
    "groups_changed",  # share of heads that have changed their group
    "centre_shift",  # way of the centres relative to their length: the paper's rho bounds it
    "group_silhouette",  # of heads in their groups, from -1 to 1
    "group_dunn",  # least distance of two groups / largest within one
)


def padding_of(net_input: dict[str, Any], symbol: int) -> Padding:
    """Where the inputs of a translation model, or of a language model, are ``symbol``."""
    source = net_input["src_tokens"]
    return Padding(source.eq(symbol), net_input.get("prev_output_tokens", source).eq(symbol))


@contextmanager
def watched(model: nn.Module) -> Iterator[list[HeadGroupAttention]]:
    """While it lasts, the attentions of ``model`` keep the features of their heads."""
    attentions = head_group_attentions(model)
    if not attentions:
        raise UserError(
            "the criterion needs a model whose heads have groups",
            todo="give --arch transformer_grouped_heads, or a criterion without head groups",
        )
    handles = [attention.watch() for attention in attentions]
    try:
        yield attentions
    finally:
        for handle in handles:
            handle.remove()


def gram_matrices(attentions: Sequence[HeadGroupAttention], padding: Padding) -> list[Tensor]:
    """The Gram matrix ``(H, H)`` of each attention, which forgets its features."""
    found = []
    for attention in attentions:
        if attention.features is None:
            raise UserError(
                "a layer was left out, and its heads have no features to be grouped by",
                todo="train head groups without --encoder-layerdrop and --decoder-layerdrop",
            )
        padded = padding.of(attention)
        found.append(groups.gram_matrix(attention.features, padded, attention.centred))
        attention.features = None
    return found


def constrain(attentions: Sequence[HeadGroupAttention], padding: Padding) -> dict[str, Tensor]:
    """Update the groups of heads from the features of a training batch: their :data:`MEASURES`."""
    grams = gram_matrices(attentions, padding)
    if not all(gram.requires_grad for gram in grams):
        raise UserError(
            "the heads' features have no gradient",
            todo="train head groups without --checkpoint-activations",
        )
    sums: list[Tensor] = []
    for places in alike(attentions):
        gram = torch.stack([grams[i] for i in places])
        chosen = [attentions[i] for i in places]
        membership, moved = regroup(chosen, gram.detach())
        clear = groups.quality(gram.detach(), membership)
        parts = (*groups.similarity(gram, membership), *moved, *clear)
        sums.append(torch.stack([part.sum() for part in parts]))
    means = torch.stack(sums).sum(dim=0) / len(attentions)
    return dict(zip(MEASURES, means.unbind(), strict=True))


def regroup(
    attentions: Sequence[HeadGroupAttention], gram: Tensor
) -> tuple[Tensor, groups.Movement]:
    """Move on with k-means from the attentions' groups, and keep the result in them.

    All processes of a training take the mean of their Gram matrices, and so have the same groups.

    Args:
        gram: ``(L, H, H)``, without gradient.
    """
    ranks = distributed.get_data_parallel_world_size()
    if ranks > 1:
        gram = gram.clone()
        distributed.all_reduce(gram, group=distributed.get_data_parallel_group())
        gram = gram / ranks
    before = torch.stack([attention.membership for attention in attentions]).to(gram.dtype)
    after = groups.cluster(gram, before)
    for attention, membership in zip(attentions, after, strict=True):
        attention.membership.copy_(membership)
    return after, groups.movement(gram, before, after)


def alike(attentions: Sequence[HeadGroupAttention]) -> list[list[int]]:
    """Places of attentions with as many heads and groups, which are computed at once."""
    found: dict[tuple[int, int], list[int]] = {}
    for place, attention in enumerate(attentions):
        found.setdefault((attention.num_heads, attention.groups), []).append(place)
    return list(found.values())
