"""A frozen model reads data, and every batch votes for one head of each group (arXiv 2305.14380).

Voting-to-stay, section 3 of the paper: in each batch the heads of an attention are grouped by
k-means, and in each group the head nearest to the centre gets a vote.  Groups keep their number
from batch to batch: k-means starts from the groups that the model was trained with, and what comes
out is numbered as they are.  A model without groups takes those of the first batch.

The whole model is frozen and in evaluation mode, padding is not looked at, and nothing is drawn by
chance: the same checkpoint and data give the same votes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils
from torch import Tensor
from torch.nn import functional

from collab_common.errors import UserError
from fairseq_collab.attention import groups
from fairseq_collab.attention.head_groups import HeadGroupAttention, head_group_attentions
from fairseq_collab.checkpoints.opener import epoch
from fairseq_collab.checkpoints.prune.trained import (
    GROUPED,
    Trained,
    build,
    sized_options,
    weights_of,
)
from fairseq_collab.criterions.head_groups import gram_matrices, padding_of, watched
from fairseq_collab.models.layers import SITES

#: Steps of k-means in a batch, more than in training: here there is no next update.
ITERATIONS = 20


@dataclass
class Ballot:
    """The votes in one attention: ``votes (C, H)``, by group and head."""

    attention: HeadGroupAttention
    votes: Tensor
    changed: float = 0.0  # sum over batches: share of heads in another group than trained
    shift: float = 0.0  # sum over batches: way of the centres, relative to their length

    def cast(self, gram: Tensor) -> None:
        """Let one batch vote: ``gram (H, H)``."""
        gram, reference = gram.unsqueeze(0), self.attention.membership.unsqueeze(0).to(gram.dtype)
        membership = groups.cluster(gram, reference, ITERATIONS)
        if not reference.any():
            self.attention.membership.copy_(membership[0])
            reference = membership
        membership = groups.match(membership, reference)
        moved = groups.movement(gram, reference, membership)
        self.changed += float(moved.changed)
        self.shift += float(moved.shift)
        typical = groups.typical_heads(gram, membership)[0].cpu()  # (C,)
        self.votes[torch.arange(len(typical)), typical] += 1


@dataclass(frozen=True)
class Count:
    """The votes of all batches.

    Attributes:
        votes: by site and layer; each ``C x H``, by group and head.
        changed, shift: means over batches and attentions: how stable the groups are.
    """

    votes: dict[str, list[list[list[int]]]]
    batches: int
    changed: float
    shift: float


def grouped_model(trained: Trained, head_groups: str | None, feature: str | None) -> Any:
    """The trained model with heads in groups: its own, unless told otherwise.

    Raises:
        UserError: it has none, and ``head_groups`` does not say how many.
    """
    own = head_group_attentions(trained.model)
    if head_groups is None and not own:
        raise UserError(
            "has no groups of heads", where=trained.path, todo="say how many with --groups"
        )
    options = sized_options(trained, GROUPED, trained.heads)
    options.head_groups = head_groups or options.head_groups
    options.group_feature = feature or options.group_feature
    model = build(trained, options, weights_of(trained))
    if head_groups is None:
        for attention, source in zip(head_group_attentions(model), own, strict=True):
            attention.membership.copy_(hard(source.membership))
    return model


def hard(membership: Tensor) -> Tensor:
    """The group that a head has been in most, in an average: ``(H, C) -> (H, C)``."""
    most = functional.one_hot(membership.argmax(dim=1), membership.size(1))
    return most * (membership.sum() > 0)


def batches(trained: Trained, subset: str, max_tokens: int | None) -> Iterator[dict[str, Any]]:
    """One epoch of ``subset``, in the batches of the training unless ``max_tokens`` is given.

    Raises:
        UserError: it has no sentence that the model can read.
        FileNotFoundError: fairseq's, if there is no such subset; told in one line by the commands.
    """
    trained.task.load_dataset(subset)
    return epoch(trained.model, trained.cfg, trained.task, subset, max_tokens)


def count_votes(
    model: Any, samples: Iterable[dict[str, Any]], padding_symbol: int, device: torch.device
) -> Count:
    """Let every batch vote.

    Args:
        model: with heads in groups, in eval mode, on ``device``.

    Raises:
        UserError: there is no batch.
    """
    ballots: dict[HeadGroupAttention, Ballot] = {}
    read = 0
    with torch.no_grad(), watched(model) as attentions:
        for attention in attentions:
            shape = (attention.groups, attention.num_heads)
            ballots[attention] = Ballot(attention, torch.zeros(shape, dtype=torch.int64))
        for sample in samples:
            net_input = utils.apply_to_sample(lambda tensor: tensor.to(device), sample["net_input"])
            model(**net_input)
            padding = padding_of(net_input, padding_symbol)
            for attention, gram in zip(attentions, gram_matrices(attentions, padding), strict=True):
                ballots[attention].cast(gram)
            read += 1
    if not read:
        raise UserError("there is nothing to vote on", todo="give data with sentences")
    found: dict[str, list[list[list[int]]]] = {site: [] for site in SITES}
    for attention in attentions:
        found[attention.site].append(ballots[attention].votes.tolist())
    total = read * len(ballots)
    return Count(
        found,
        read,
        sum(ballot.changed for ballot in ballots.values()) / total,
        sum(ballot.shift for ballot in ballots.values()) / total,
    )
