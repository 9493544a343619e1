"""A frozen model reads data, and every batch votes for one head of each group (arXiv 2305.14380).

Voting-to-stay, section 3 of the paper: in each batch the heads of an attention are grouped by
k-means, and in each group the head most like the centre gets a vote.  Groups keep their number from
batch to batch: k-means starts from the groups that the model was trained with, and what comes out
is numbered as they are.  A model without groups takes those of the first batch.  With several
features, as in algorithm 1, the heads are compared by one after the other, and all votes count.

The whole model is frozen and in evaluation mode, padding is not looked at, and where chance elects
its seed is fixed: the same checkpoint and data give the same votes.  ``fairseq-collab vote`` writes
them, and ``fairseq-collab prune`` reads them:

    {"version": 1, "checkpoint": ..., "data": ..., "subset": ..., "feature": "value,output",
     "election": "cosine", "count": "votes", "rule": "group", "batches": 400,
     "stability": {"changed": 0.01, "shift": 0.02},
     "votes": {"encoder": [LAYER, ...], "decoder": [...], "cross": [...]}}

Each LAYER has a line for each of its groups, each line the votes for each of its heads; a layer
without heads has none.  Scores (``count``) elect no head: ``election`` is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from collab_common.errors import UserError
from collab_common.files import read_versioned, write_content
from fairseq_collab.analysis.heads import content
from fairseq_collab.attention import groups
from fairseq_collab.attention.head_groups import head_group_attentions
from fairseq_collab.criterions.head_groups import (
    Padding,
    alike,
    gram_matrices,
    padding_of,
    watched,
)
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.prune import surgery
from fairseq_collab.prune.choices import Heads, check_enough, largest
from fairseq_collab.prune.surgery import Kept
from fairseq_collab.trained.attentions import by_site
from fairseq_collab.trained.opener import Trained

VERSION = 1
#: Steps of k-means in a batch, more than in training: here there is no next update.
ITERATIONS = 20
#: What a batch gives: a vote to one head of each group, or to every head its cosine with the centre
#: (the paper's ablation).
COUNTS = ("votes", "scores")
#: ``group``: the most voted head of each group (arXiv 2305.14380).  ``top``: the heads with most
#: votes in all, whatever their groups (the paper's released code).
RULES = ("group", "top")
Layer = list[list[float]]  # C x H: by group and head


class Cast(NamedTuple):
    """What one batch says in ``L`` attentions with as many heads and groups."""

    votes: Tensor  # (L, C, H): or scores, by group and head
    reference: Tensor  # (L, H, C): the trained groups, or else those of the first batch
    moved: groups.Movement  # how far the groups are from these


def cast(gram: Tensor, reference: Tensor, election: str, count: str = "votes") -> Cast:
    """Let one batch vote: ``gram (L, H, H)``, ``reference (L, H, C)``, of zeros for none yet."""
    reference = reference.to(gram.dtype)
    membership = groups.cluster(gram, reference, ITERATIONS)
    # Which have none is not asked: that would stall a GPU.
    reference = torch.where(reference.sum((1, 2), keepdim=True) > 0, reference, membership)
    membership = groups.match(membership, reference)
    moved = groups.movement(gram, reference, membership)
    if count == "scores":
        scores = (groups.phi(gram, membership) * membership).transpose(1, 2).double()
        return Cast(scores, reference, moved)
    typical = groups.typical_heads(gram, membership, election)  # (L, C)
    return Cast(functional.one_hot(typical, gram.size(1)), reference, moved)


class Count(NamedTuple):
    """The votes of all batches, by site and layer; and how stable groups are, ``changed`` and
    ``shift``: means over batches, features and attentions."""

    votes: dict[str, list[Layer]]
    batches: int
    changed: float
    shift: float


def grouped_model(trained: Trained, head_groups: str | None) -> Any:
    """The trained model with heads in groups: its own, unless ``head_groups`` says how many.

    Raises:
        UserError: it has none, and ``head_groups`` does not say how many; or it has no heads.
    """
    own = head_group_attentions(trained.model)
    if head_groups is None and not own:
        raise UserError("has no groups of heads", trained.path, "say how many with --groups")
    if not any(map(any, trained.heads.values())):
        raise UserError("has no heads that could vote", trained.path)
    options = surgery.sized_options(trained, surgery.GROUPED, trained.heads)
    options["head_groups"] = head_groups or options["head_groups"]
    model = surgery.rebuilt(trained, options, surgery.weights_of(trained)).model
    if head_groups is None:
        for attention, source in zip(head_group_attentions(model), own, strict=True):
            attention.membership.copy_(hard(source.membership))
    return model


def hard(membership: Tensor) -> Tensor:
    """The group that a head has been in most, in an average: ``(H, C) -> (H, C)``."""
    most = functional.one_hot(membership.argmax(dim=1), membership.size(1))
    return most * (membership.sum() > 0)


def count_votes(
    model: Any,
    samples: Iterable[dict[str, Any]],
    features: Sequence[str],
    election: str = "cosine",
    count: str = "votes",
) -> Count:
    """Let every batch vote.

    Args:
        model: with heads in groups, in eval mode.
        samples: fairseq's batches, one at least, on the model's device.
        features: what of the heads is compared, some of :data:`.head_groups.FEATURES`.
        election: one of :data:`.groups.ELECTIONS`; of no meaning with ``scores``.
        count: one of :data:`COUNTS`.
    """
    attentions = head_group_attentions(model)
    stacks = alike(attentions)
    references = [_stacked([one.membership for one in attentions], places) for places in stacks]
    votes: list[Any] = [0] * len(stacks)
    # Sums stay on the device: to look at them after each batch would stall a GPU.
    moved: Any = 0
    read = 0
    for sample in samples:
        net_input = sample["net_input"]
        padding = padding_of(net_input, model.decoder.padding_idx)
        for feature in features:
            grams = _compared(model, net_input, padding, feature)
            for number, places in enumerate(stacks):
                found = cast(_stacked(grams, places), references[number], election, count)
                votes[number], references[number] = votes[number] + found.votes, found.reference
                moved = moved + torch.stack(found.moved).double().sum(1)
        read += 1
    changed, shift = (moved / (read * len(features) * len(attentions))).tolist()
    lists: dict[nn.Module, Layer] = {
        attentions[place]: layer
        for places, each in zip(stacks, votes, strict=True)
        for place, layer in zip(places, each.tolist(), strict=True)
    }
    by_layer: dict[str, list[Layer]] = {
        site: [lists.get(one.module, []) for one in places]
        for site, places in by_site(model).items()
    }
    return Count(by_layer, read, changed, shift)


def _stacked(tensors: Sequence[Tensor], places: Sequence[int]) -> Tensor:
    return torch.stack([tensors[place] for place in places])


@torch.no_grad()
def _compared(
    model: Any, net_input: dict[str, Any], padding: Padding, feature: str
) -> list[Tensor]:
    """The Gram matrix ``(H, H)`` of one feature of the heads of each attention."""
    for attention in head_group_attentions(model):
        attention.compare(feature)
    with watched(model) as attentions:
        model(**net_input)
        return gram_matrices(attentions, padding)


def elected(votes: Sequence[Sequence[float]], rule: str, keep: int) -> list[int]:
    """The heads of one attention that ``votes (C, H)``, by group and head, leave.

    With ``group``, two groups that vote most for the same head leave it to the one with more
    votes; the other takes its next.  Of equals the first head stays.
    """
    if rule == "top":
        return largest([sum(column) for column in zip(*votes, strict=True)], keep)
    ballots = sorted(
        (-count, group, head) for group, row in enumerate(votes) for head, count in enumerate(row)
    )
    chosen: dict[int, int] = {}
    for _, group, head in ballots:
        if group not in chosen and head not in chosen.values():
            chosen[group] = head
    return sorted(chosen.values())


# ---- the file ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VotesFile:
    """The votes for the heads of one model, and the rule to count them by."""

    path: Path
    rule: str
    votes: dict[Site, list[Layer]]

    def kept(self, heads: Heads, keep: Mapping[Site, int] | None) -> Kept:
        """The heads that stay: one a group, or ``keep`` in each attention.

        Raises:
            UserError: the votes are for other heads, ``keep`` is missing with the rule ``top``, or
                is not the number of groups with the rule ``group``.
        """
        for site in SITES:
            voted = [_heads(votes) for votes in self.votes[site]]
            content.check_heads(voted, heads, site, self.path)
        return {
            site: [elected(votes, self.rule, self._number(site, votes, keep)) for votes in layers]
            for site, layers in self.votes.items()
        }

    def _number(self, site: Site, votes: Layer, keep: Mapping[Site, int] | None) -> int:
        if keep is None and self.rule == "top":
            raise UserError("say how many heads stay", where="--keep")
        if not votes:  # a layer without heads
            return 0
        number = len(votes) if keep is None else keep[site]
        if self.rule == "group" and number != len(votes):
            raise UserError(
                f"{number} heads of {site} attention cannot stay, one for each of its "
                f"{len(votes)} groups",
                where=self.path,
                todo="vote again with --groups, or --rule top",
            )
        check_enough({site: [_heads(votes)]}, {site: number})
        return number


def _heads(votes: Layer) -> int:
    """How many heads a layer has."""
    return len(votes[0]) if votes else 0


def write(path: Path, votes: Mapping[str, Any]) -> None:
    """Write a file of votes as a whole or not at all."""
    text = json.dumps({"version": VERSION, **votes}, indent=1, ensure_ascii=False) + "\n"
    write_content(path, text.encode(), "give another file with --output")


def read(path: Path) -> VotesFile:
    """Read a file of votes."""
    todo = "give a file that fairseq-collab vote has written"
    found = read_versioned(path, VERSION, "votes", todo)
    rule, votes = found.get("rule"), found.get("votes", {})
    if rule not in RULES or not _are_votes(votes):
        raise UserError("its votes are damaged", where=path, todo="vote again")
    return VotesFile(path, rule, {site: votes[site] for site in SITES})


def _are_votes(votes: Any) -> bool:
    """Whether it is a table of numbers for each layer of each site."""
    if not isinstance(votes, dict) or set(votes) != set(SITES):
        return False
    return all(
        layer == []
        or (
            layer
            and layer[0]
            and len({len(row) for row in layer}) == 1
            and all(isinstance(number, int | float) for row in layer for number in row)
        )
        for layers in votes.values()
        for layer in layers
    )
