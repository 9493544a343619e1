"""Which weights of an attention belong to single heads, and which to several.

Heads that share a key or a value head are removed together, or in equal numbers from all groups:
H heads over G heads of keys and values stay H' over G'.
"""

from __future__ import annotations

from typing import Any

from collab_lab.metrics.cost import cached_numbers
from fairseq_collab.attention import CollaborativeAttention


def parts_of_heads(module: Any) -> tuple[str, ...]:
    """Names of the weights whose first dimension is that of heads, or of groups of them."""
    if not isinstance(module, CollaborativeAttention):
        return ("q_proj", "k_proj", "v_proj")  # of a latent: those that read it
    return ("q_proj" if module.query_mixing == "own" else "mixing", "v_proj")


def groups_of_heads(module: Any) -> int:
    """The number of heads of keys or values that the heads of queries share."""
    for name in ("key_value_heads", "value_heads"):
        if hasattr(module, name):
            return int(getattr(module, name))
    return int(module.num_heads)


def heads_together(module: Any) -> int:
    """How many heads share a head of keys or values, and are removed together."""
    return int(module.num_heads) // max(groups_of_heads(module), 1)


def costs_of_heads(module: Any, number: int) -> tuple[list[int], int]:
    """Of an attention with ``number`` of its heads, groups as they are.

    Returns:
        The lengths of the vectors that are cached of a token, and the number of parameters.
    """
    heads, parts, fixed, of_heads = module.num_heads, parts_of_heads(module), 0, 0
    for name, weight in module.named_parameters():
        if name.partition(".")[0] in parts or name == "out_proj.weight":
            of_heads += weight.numel()
        elif number or name == "out_proj.bias":
            fixed += weight.numel()
    return _widths(module, number, parts) if number else [], fixed + of_heads * number // heads


def _widths(module: Any, number: int, parts: tuple[str, ...]) -> list[int]:
    keys, values = cached_numbers(module)
    if getattr(module, "has_latent", False):
        return [keys]
    keys = number * keys // module.num_heads if "k_proj" in parts else keys
    return [keys, number * values // module.num_heads]
