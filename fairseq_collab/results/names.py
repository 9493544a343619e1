"""Methods in the field's words, for figures and pages; runs and their folders keep short names."""

from __future__ import annotations

from collections.abc import Mapping

METHODS = {
    "collab": "collaborative heads",
    "collab-values": "collaborative heads, shared values",
    "concatenated": "concatenated heads",
    "fewer-heads": "fewer ordinary heads",
    "fork_collab": "collaborative heads, the authors' choices",
    "fork_concatenated": "concatenated heads, the authors' choices",
    "grouped": "heads in groups",
    "grouped-query": "grouped-query heads",
    "grouped_centred": "heads in groups, centred features",
    "grouped_centred_pruned": "elected heads, centred features",
    "grouped_important": "most important heads",
    "grouped_pruned": "elected heads",
    "grouped_random": "random heads",
    "latent": "latent heads",
    "multi-query": "multi-query heads",
    "plain": "ordinary heads",
    "size-d/H": "heads of size d/H",
    "size-d/H-wide": "heads of size d/H, wider feed-forward",
    "smaller-keys": "ordinary heads, smaller keys",
    "transformer_gated_heads": "heads with gates",
    "vanilla": "ordinary heads",
}


def named(label: str, names: Mapping[str, str] = METHODS) -> str:
    """A row's label in words: by the whole of it, or by its method, which its choices follow.

    >>> named("grouped, head_groups=2")
    'heads in groups, head_groups=2'
    """
    method, *choices = label.split(", ")
    return names.get(label) or ", ".join([names.get(method, method), *choices])
