"""Voting-to-stay: every batch votes for one head of each group (Ni et al. 2023, arXiv 2305.14380).

This is section 3 of the paper.  The model is frozen and reads one epoch.  In each batch, k-means
groups the heads of each attention, starting from the trained groups, and each group votes for the
head with the largest cosine with its centre.  :func:`elected` keeps the head of each group that got
the most votes.

``fairseq-collab vote`` writes this file, ``fairseq-collab prune`` reads it:

    {"version": 1, "checkpoint": NAME, "model": HASH, "data": NAME, "subset": "train",
     "feature": "value", "batches": 400,
     "votes": {"encoder": [LAYER, ...], "decoder": [...], "cross": [...]}}

LAYER is a matrix ``(C, H)``: votes by group and head.  It is empty in a layer without heads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from collab_common.files import read_versioned, write_atomic
from collab_lab.trained.attentions import Retained
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.identity import hash_of
from fairseq_collab.attention.head_groups import HeadGroupAttention, head_group_attentions
from fairseq_collab.criterions import clusters
from fairseq_collab.criterions.constraint import equal_sizes, gram_matrices, padding_of, watched

VERSION = 1
#: Steps of k-means in a batch: more than in training, where the next update continues.
ITERATIONS = 20
#: Cosines that differ by less are equal: rounding of a Gram matrix in single precision.
TIE = 1e-6
Layer = list[list[float]]


class Ballot(NamedTuple):
    """The result of one batch in ``L`` attentions with equal ``H`` and ``C``."""

    votes: Tensor  # (L, C, H)
    reference: Tensor  # (L, H, C): the trained groups, else those of the first batch


def cast(gram: Tensor, reference: Tensor) -> Ballot:
    """The votes of one batch: ``gram (L, H, H)``, ``reference (L, H, C)`` (zeros at the start)."""
    reference = reference.to(gram.dtype)
    membership = clusters.cluster(gram, reference, ITERATIONS)
    # torch.where instead of a branch avoids a GPU sync.
    reference = torch.where(reference.sum((1, 2), keepdim=True) > 0, reference, membership)
    membership = match(membership, reference)
    typical = typical_heads(gram, membership)  # (L, C)
    return Ballot(functional.one_hot(typical, gram.size(1)), reference)


def match(membership: Tensor, reference: Tensor) -> Tensor:
    """Number the groups as in ``reference``, matching groups with most common heads first."""
    layers, _, groups = membership.shape
    overlap = reference.transpose(1, 2) @ membership  # (L, C of the reference, C)
    layer = torch.arange(layers, device=overlap.device)
    order = torch.zeros_like(overlap)
    for _ in range(groups):
        best = overlap.flatten(1).argmax(dim=1)
        name, group = best // groups, best % groups
        order[layer, name, group] = 1
        overlap[layer, name] = -1
        overlap[layer, :, group] = -1
    return membership @ order.transpose(1, 2)


def typical_heads(gram: Tensor, membership: Tensor) -> Tensor:
    """The head of each group with the largest cosine with the centre: ``(L, C)``.

    Among equals (:data:`TIE`) it is the head with the longest feature.  In the paper this is phi,
    section 3.2.
    """
    weights = clusters.mean_weights(membership)
    to_centres = gram @ weights.transpose(1, 2)  # (L, H, C)
    centre_norms = (weights @ to_centres).diagonal(dim1=1, dim2=2).unsqueeze(1)  # (L, 1, C)
    norms = gram.diagonal(dim1=1, dim2=2).unsqueeze(2)  # (L, H, 1)
    cosines = clusters.cosine(to_centres, norms, centre_norms).masked_fill(membership == 0, -2)
    equals = cosines >= cosines.amax(dim=1, keepdim=True) - TIE
    return norms.masked_fill(~equals, -1).argmax(dim=1)


class Count(NamedTuple):
    """The counted votes of an epoch."""

    votes: dict[AttentionType, list[Layer]]  # (C, H) by attention type and layer
    batches: int


def hard(membership: Tensor) -> Tensor:
    """The most frequent group of each head in an average of checkpoints: ``(H, C) -> (H, C)``."""
    most = functional.one_hot(membership.argmax(dim=1), membership.size(1))
    return most * (membership.sum() > 0)


@torch.no_grad()
def count_votes(trained: Trained, samples: Iterable[dict[str, Any]]) -> Count:
    """Count the votes of all batches.

    Args:
        trained: a model whose heads have groups.
        samples: fairseq's batches, at least one, on the model's device.
    """
    model = trained.model
    attentions = head_group_attentions(model)
    if not attentions:
        todo = "give a transformer_grouped_heads, or a language model of this kind"
        raise UserError("has no groups of heads", trained.path, todo)
    stacks = equal_sizes(attentions)
    groups = [hard(attention.membership) for attention in attentions]
    references = [torch.stack([groups[i] for i in indices]) for indices in stacks]
    votes: list[Any] = [0] * len(stacks)
    batches = 0
    for sample in samples:
        grams = _gram_matrices(model, sample["net_input"])
        for number, indices in enumerate(stacks):
            ballot = cast(torch.stack([grams[i] for i in indices]), references[number])
            votes[number], references[number] = votes[number] + ballot.votes, ballot.reference
        batches += 1
    lists: dict[nn.Module, Layer] = {
        attentions[index]: layer
        for indices, of_stack in zip(stacks, votes, strict=True)
        for index, layer in zip(indices, of_stack.tolist(), strict=True)
    }
    ordered = {
        type_: [lists.get(a.module, []) for a in layers]
        for type_, layers in trained.attentions.items()
    }
    return Count(ordered, batches)


def _gram_matrices(model: Any, net_input: dict[str, Any]) -> list[Tensor]:
    """The Gram matrix ``(H, H)`` of each attention's heads in one batch."""
    attentions: list[HeadGroupAttention]
    with watched(model) as attentions:
        model(**net_input)
        return gram_matrices(attentions, padding_of(net_input, model.decoder.padding_idx))


def elected(votes: Sequence[Sequence[float]]) -> list[int]:
    """The head of each group with the most votes: ``(C, H)`` -> ``C`` heads.

    If two groups elect the same head, the group with more votes gets it, and the other takes its
    next best.  Among equals the first head wins.
    """
    ballots = sorted(
        (-count, group, head) for group, row in enumerate(votes) for head, count in enumerate(row)
    )
    chosen: dict[int, int] = {}
    for _, group, head in ballots:
        if group not in chosen and head not in chosen.values():
            chosen[group] = head
    return sorted(chosen.values())


# ---- the file ------------------------------------------------------------------------------------


def write(path: Path, votes: Mapping[str, Any]) -> None:
    """Write a file of votes atomically."""
    text = json.dumps({"version": VERSION, **votes}, indent=1, ensure_ascii=False) + "\n"
    write_atomic(path, text)


def read(path: Path, trained: Trained) -> Retained:
    """Read the elected heads from a file of votes; UserError if another model has voted.

    Args:
        trained: the model to prune.
    """
    todo, heads = "give a file that fairseq-collab vote has written", trained.heads
    content = read_versioned(path, VERSION, "votes", todo)
    votes: Any = content.get("votes")
    try:
        voted = {
            type_: [torch.tensor(layer).shape[1] if layer else 0 for layer in votes[type_]]
            for type_ in ATTENTION_TYPES
        }
    except (TypeError, LookupError, ValueError, RuntimeError) as error:
        raise UserError("its votes are damaged", where=path, todo="vote again") from error
    for type_ in ATTENTION_TYPES:
        if voted[type_] != list(heads[type_]):
            problem = f"belongs to another model: it has {voted[type_]} heads by layer in {type_} "
            raise UserError(f"{problem}attention, the checkpoint has {list(heads[type_])}", path)
    if content.get("model") != hash_of(trained.model):
        problem = f"the votes belong to another model than {trained.path}"
        raise UserError(problem, path, "run fairseq-collab vote for it")
    return {type_: [elected(layer) for layer in votes[type_]] for type_ in ATTENTION_TYPES}
