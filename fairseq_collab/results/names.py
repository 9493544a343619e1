"""Methods in the field's words, for figures and pages; run folders keep short names."""

from __future__ import annotations

METHODS = {
    "collab": "shared keys",
    "collab-values": "shared keys and values",
    "concatenated": "separate keys",
    "fewer-heads": "fewer standard heads",
    "fork_collab": "shared keys, the authors' settings",
    "fork_concatenated": "separate keys, the authors' settings",
    "grouped": "grouped heads",
    "grouped_centred": "grouped heads, centred features",
    "grouped_centred_pruned": "elected heads, centred features",
    "grouped_important": "most important heads",
    "grouped_pruned": "elected heads",
    "grouped_random": "random heads",
    "latent": "latent attention",
    "plain": "standard heads",
    "size-d/H": "head size d/H",
    "size-d/H-wide": "head size d/H, wider feed-forward",
    "size-32": "head size 32",
    "smaller-keys": "separate keys, narrower",
    "transformer_gated_heads": "gated heads",
    "vanilla": "standard heads",
}


def named(label: str) -> str:
    """A row's label in words: its method, then the choices of the sweep.

    >>> named("grouped, head_groups=2")
    'grouped heads, head groups 2'
    """
    method, *choices = label.split(", ")
    words = (choice.replace("_", " ").replace("=", " ") for choice in choices)
    return ", ".join([METHODS.get(method, method), *words])
