"""Which weights of an attention belong to single heads, and which to several.

Heads that share a key or a value head are removed together, or in equal numbers from all groups:
H heads over G heads of keys and values stay H' over G'.
"""

from __future__ import annotations

from typing import Any

from collab_lab.metrics.cost import cached_numbers
from collab_lab.trained.attentions import parts_of_heads


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
