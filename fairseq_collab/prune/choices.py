"""Choices of heads to keep: by name, at random, by importance, or by gates.

Votes are in :mod:`.votes`.  A gate (Voita et al. 2019, arXiv 1905.09418) multiplies a head's
output, and so does a factor of the head's columns of ``out_proj``: a gate moves there without a
change of the function.  A head whose gate is 0 then has columns of zeros, and can be removed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch

from collab_common.errors import UserError
from fairseq_collab.analysis.importance import normalised
from fairseq_collab.attention.gates import GatedAttention, deterministic, gated_attentions
from fairseq_collab.models.layers import ATTENTION_TYPES, AttentionType
from fairseq_collab.prune.surgery import Kept
from fairseq_collab.trained.opener import Trained

Heads = Mapping[AttentionType, Sequence[int]]  # head counts by attention type and layer
#: A number for each head, by attention type and layer: an importance, or a gate.
Measure = Mapping[AttentionType, Sequence[Sequence[float]]]
#: The measure of ``heads.json`` that is used: Michel et al. 2019, arXiv 1905.10650.
MEASURE = "importance"
#: A layer without heads in ``--keep-heads``.
NO_HEADS = "-"


def all_heads(heads: Heads) -> Kept:
    """Every head."""
    return {type_: [list(range(count)) for count in counts] for type_, counts in heads.items()}


def named_heads(parts: Sequence[str], heads: Heads) -> Kept:
    """Parse ``TYPE:HEADS/HEADS/...``: head numbers by layer joined by commas, ``-`` for none.

    Heads of one layer are those of all layers.  Attention types that are not named keep all heads.

    Raises:
        UserError: a part that cannot be parsed, an attention type that is unknown, given twice, or
            absent from the model.
    """
    kept = dict(all_heads(heads))
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


def random_heads(heads: Heads, keep: Mapping[AttentionType, int], seed: int) -> Kept:
    """``keep`` random heads of each attention; ``seed`` determines them."""
    check_enough(heads, keep)
    generator = torch.Generator().manual_seed(seed)
    return {
        type_: [
            sorted(torch.randperm(n, generator=generator)[: keep[type_]].tolist()) for n in each
        ]
        for type_, each in heads.items()
    }


def check_enough(heads: Heads, keep: Mapping[AttentionType, int]) -> None:
    """Raise UserError for more heads than an attention has."""
    for type_, counts in heads.items():
        if min(counts, default=keep[type_]) < keep[type_]:
            what = f"cannot keep {keep[type_]} heads of {type_} attention, which has {min(counts)}"
            raise UserError(what, "--keep")


# ---- by importance -------------------------------------------------------------------------------


def most_important(measure: Measure, heads: Heads, keep: Mapping[AttentionType, int]) -> Kept:
    """The ``keep`` most important heads of each attention; of equals the first."""
    check_enough(heads, keep)
    return {
        type_: [
            sorted(sorted(range(len(values)), key=lambda head: -values[head])[: keep[type_]])
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


def gates_of(trained: Trained, evaluation: str | None = None) -> Measure:
    """The gate of each head in evaluation; 1 for heads without gates.

    Args:
        evaluation: one of :data:`.gates.EVALUATIONS`; default: the model's own.
    """
    return {
        type_: [
            deterministic(module.log_alpha.detach(), evaluation or module.gate_evaluation).tolist()
            if isinstance(module := one.module, GatedAttention)
            else [1.0] * module.num_heads
            for one in found
        ]
        for type_, found in trained.attentions.items()
    }


def rounded_gates(trained: Trained) -> Measure:
    """The gates rounded to 0 or 1, as in the paper; raises UserError for a model without gates."""
    if not gated_attentions(trained.model):
        todo = "give a transformer_gated_heads, or another choice of heads"
        raise UserError("its heads have no gates", trained.path, todo)
    return gates_of(trained, "rounded")


def open_heads(gates: Measure) -> Kept:
    """The heads whose gates are above 0; a layer may have none."""
    return {
        type_: [[head for head, gate in enumerate(values) if gate > 0] for values in layers]
        for type_, layers in gates.items()
    }


def without_gates(trained: Trained, gates: Measure | None = None) -> Trained:
    """A copy of the model with ``gates`` multiplied into ``out_proj`` and open gates.

    Args:
        gates: default: those of evaluation.
    """
    if not gated_attentions(trained.model):
        return trained
    gates = gates or gates_of(trained)
    result = trained.with_model(copy.deepcopy(trained.model))
    for type_, found in result.attentions.items():
        for one, values in zip(found, gates[type_], strict=True):
            if isinstance(one.module, GatedAttention):
                one.module.absorb(torch.tensor(values))
    return result
