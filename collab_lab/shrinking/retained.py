"""Heads and units to keep as lists, and the model that keeps them, all other weights unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from collab_lab.shrinking.draft import Draft
from collab_lab.trained.attentions import Attention, Retained, heads_together
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.rebuilt import model_problems, reject


def all_heads(trained: Trained) -> dict[AttentionType, list[list[int]]]:
    """Every head, by attention type and layer."""
    return {type_: [[*range(n)] for n in counts] for type_, counts in trained.heads.items()}


def heads_by_attention(
    trained: Trained, retained: Retained
) -> list[tuple[Attention, Sequence[int]]]:
    """Each attention with its ``retained`` heads."""
    return [
        pair
        for type_, layers in trained.attentions.items()
        for pair in zip(layers, retained[type_], strict=True)
    ]


def check_retained(trained: Trained, retained: Retained) -> None:
    """Raise UserError for heads or layers that the model does not have, or if none are left.

    An attention may lose all heads, but not a model, nor all of its cross-attention; groups of
    heads that stay keep equally many.
    """
    if others := sorted({*retained} ^ {*ATTENTION_TYPES}):
        problem = f"{others[0]!r} is missing or none of {', '.join(ATTENTION_TYPES)}"
        raise UserError(problem, "`retained`")
    for name, types in (("the model", ATTENTION_TYPES), ("cross-attention", ("cross",))):
        counts = [count for type_ in types for count in trained.heads[type_]]
        if any(counts) and not any(heads for type_ in types for heads in retained[type_]):
            raise UserError(f"no head of {name} is left", trained.path, "keep more heads")
    for type_, counts in trained.heads.items():
        layers = retained[type_]
        if len(layers) != len(counts):
            problem = f"heads are given for {len(layers)} layers, but it has {len(counts)}"
            raise UserError(f"{type_} attention: {problem}", where=trained.path)
        for layer, (heads, count) in enumerate(zip(layers, counts, strict=True)):
            if sorted(heads) != sorted({*heads} & {*range(count)}):
                problem = f"{list(heads)} are not some of its {count} heads, from 0"
                where = f"{type_} attention, layer {layer}"
                raise UserError(f"{where}: {problem}", trained.path)
    for attention, heads in heads_by_attention(trained, retained):
        stay = Counter(head // heads_together(attention.module) for head in heads)
        if len({*stay.values()}) > 1:
            problem = f"{attention}: groups of heads would keep {sorted(stay.values())} heads"
            todo = "keep equally many of each group, or whole groups, as shrink --heads SHARE does"
            raise UserError(problem, trained.path, todo)


def check_units(trained: Trained, units: Mapping[FeedForward, Sequence[int]]) -> None:
    """Raise UserError for units that a block does not have, or a block of another model."""
    widths = {block: block.width for block in feed_forwards(trained.model)}
    for block, of_block in units.items():
        width = widths.get(block, 0)
        if block not in widths or sorted(of_block) != sorted({*of_block} & {*range(width)}):
            problem = f"{block}: the units to keep are not some of its {width}, from 0"
            raise UserError(problem, trained.path)


def pruned(
    trained: Trained,
    retained: Retained,
    units: Mapping[FeedForward, Sequence[int]] | None = None,
) -> Trained:
    """The model with the ``retained`` heads and units only, all other weights unchanged.

    Args:
        units: of the blocks that lose some.
    """
    reject(trained, "its heads cannot be removed", model_problems(trained))
    check_retained(trained, retained)
    check_units(trained, units or {})
    draft = Draft(trained)
    for attention, heads in heads_by_attention(trained, retained):
        draft.keep_heads(attention, heads)
    for block, of_block in (units or {}).items():
        draft.keep_units(block, of_block)
    return draft.build()
