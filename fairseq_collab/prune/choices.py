"""Choices of heads to keep: by name, at random, by importance, or by gates.

Votes are in :mod:`.votes`.  A gate (Voita et al. 2019, arXiv 1905.09418) multiplies a head's
output, and so does a factor of the head's columns of ``out_proj``: a gate moves there without a
change of the function.  A head whose gate is 0 then has columns of zeros, and can be removed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from fairseq_collab.analysis.importance import normalised
from fairseq_collab.attention.gates import GatedAttention, gated_attentions, rounded
from fairseq_collab.prune.surgery import Kept
from fairseq_collab.trained.opener import Trained

Heads = Mapping[AttentionType, Sequence[int]]  # head counts by attention type and layer
#: The importance of each head, by attention type and layer.
Measure = Mapping[AttentionType, Sequence[Sequence[float]]]
#: The measure of ``heads.json`` that is used: Michel et al. 2019, arXiv 1905.10650.
MEASURE = "importance"
#: A layer without heads in ``--keep-heads``.
NO_HEADS = "-"


def all_heads(heads: Heads) -> dict[AttentionType, list[list[int]]]:
    """Every head."""
    return {type_: [list(range(count)) for count in counts] for type_, counts in heads.items()}


def named_heads(parts: Sequence[str], heads: Heads) -> Kept:
    """Parse ``TYPE:HEADS/HEADS/...``: head numbers by layer joined by commas, ``-`` for none.

    Heads of one layer are those of all layers.  Attention types that are not named keep all heads.

    Raises:
        UserError: a part that cannot be parsed, an attention type that is unknown, given twice, or
            absent from the model.
    """
    kept = all_heads(heads)
    named: set[str] = set()
    for part in parts:
        type_, _, text = part.partition(":")
        try:
            layers = [
                [] if layer == NO_HEADS else [int(head) for head in layer.split(",")]
                for layer in text.split("/")
            ]
        except ValueError:
            layers = []
        if type_ not in ATTENTION_TYPES or not layers or type_ in named:
            raise UserError(
                f"cannot parse {part!r}",
                where="--keep-heads",
                todo=f"give each of {', '.join(ATTENTION_TYPES)} at most once, as in "
                "encoder:0,3/1,2 (heads 0 and 3 of the first layer, 1 and 2 of the second)",
            )
        if not heads[type_]:
            raise UserError(f"the model has no {type_} attention", where="--keep-heads")
        named.add(type_)
        kept[type_] = layers * len(heads[type_]) if len(layers) == 1 else layers
    return kept


def random_heads(heads: Heads, keep: int, seed: int) -> Kept:
    """``keep`` random heads of each attention; ``seed`` determines them."""
    check_enough(heads, keep)
    generator = torch.Generator().manual_seed(seed)
    return {
        type_: [sorted(torch.randperm(n, generator=generator)[:keep].tolist()) for n in each]
        for type_, each in heads.items()
    }


def check_enough(heads: Heads, keep: int) -> None:
    """Raise UserError for more heads than an attention has."""
    for type_, counts in heads.items():
        if min(counts, default=keep) < keep:
            what = f"cannot keep {keep} heads of {type_} attention, which has {min(counts)}"
            raise UserError(what, "--keep")


# ---- by importance -------------------------------------------------------------------------------


def most_important(measure: Measure, heads: Heads, keep: int) -> Kept:
    """The ``keep`` most important heads of each attention; of equals the first."""
    check_enough(heads, keep)
    return {
        type_: [
            sorted(sorted(range(len(values)), key=lambda head: -values[head])[:keep])
            for values in measure[type_]
        ]
        for type_ in heads
    }


def importance_kept(measure: Measure, heads: Heads, number: int) -> Kept:
    """The ``number`` most important heads of the whole model, at least one in each layer.

    Raises:
        UserError: the model has fewer heads, or more layers.
    """
    counts = [count for each in heads.values() for count in each]
    if not len(counts) <= number <= sum(counts):
        what = f"cannot keep {number} of {sum(counts)} heads: each of {len(counts)} layers keeps 1"
        raise UserError(what, "--importance", "change --remove-share or --as-many-as")
    gone = sum(counts) - number
    return without_least(all_heads(heads), measure, ATTENTION_TYPES, gone, least=1)


def without_least(
    kept: Kept, measure: Measure, types: Sequence[AttentionType], number: int, least: int = 0
) -> Kept:
    """``kept`` without its ``number`` least important heads of ``types``; of equals the last goes.

    Importances are divided by their l2 norm in each layer, as in Michel et al. 2019 (arXiv
    1905.10650), which makes layers comparable.

    Args:
        measure: a number for each kept head, normalised or not.
        least: the heads that each layer keeps in any case.
    """
    comparable = normalised(measure)
    places = [
        (value, type_, layer, head)
        for type_ in types
        for layer, values in enumerate(comparable[type_])
        for value, head in zip(values, kept[type_][layer], strict=True)
    ]
    left = {type_: [set(heads) for heads in layers] for type_, layers in kept.items()}
    for i in sorted(range(len(places)), key=lambda i: (places[i][0], -i)):
        _, type_, layer, head = places[i]
        if number and len(left[type_][layer]) > least:
            left[type_][layer].remove(head)
            number -= 1
    return {type_: [sorted(heads) for heads in layers] for type_, layers in left.items()}


# ---- by gates ------------------------------------------------------------------------------------


def open_heads(trained: Trained) -> Kept:
    """The heads with an open gate or none; a layer may have no head left.

    Raises:
        UserError: the model has no gates.
    """
    if not gated_attentions(trained.model):
        todo = "give a transformer_gated_heads, or another choice of heads"
        raise UserError("its heads have no gates", trained.path, todo)
    kept = all_heads(trained.heads)
    for type_, found in trained.attentions.items():
        for one in found:
            if isinstance(one.module, GatedAttention):
                [opened] = rounded(one.module.log_alpha).nonzero(as_tuple=True)
                kept[type_][one.layer] = opened.tolist()
    return kept


def without_gates(trained: Trained) -> Trained:
    """The model with its gates multiplied into ``out_proj``, and open: a copy, if it has gates."""
    if not gated_attentions(trained.model):
        return trained
    result = trained.with_model(copy.deepcopy(trained.model))
    for attention in gated_attentions(result.model):
        attention.absorb()
    return result
