"""Checks of sizes and choices; each raises ValueError and names what is wrong."""

from __future__ import annotations


def check_positive(**sizes: int) -> None:
    """Raise ValueError, with its name, for a size below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")


def check_not_negative(**sizes: int) -> None:
    """Raise ValueError, with its name, for a size below 0."""
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"{name} is {size}; it must be 0 or more")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError, with the choices, for an unknown one."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def even_head_size(embed_dim: int, num_heads: int) -> int:
    """``d/H``, which must be whole; ``d`` without heads."""
    if num_heads == 0:
        return embed_dim
    if embed_dim % num_heads:
        raise ValueError(
            f"the model size {embed_dim} does not divide by {num_heads} heads: "
            "change one of them, or give the head sizes"
        )
    return embed_dim // num_heads


def check_shared_evenly(num_heads: int, groups: int, what: str) -> None:
    """Raise ValueError if ``num_heads`` do not share ``groups`` of ``what`` evenly."""
    if num_heads % groups:
        raise ValueError(
            f"{num_heads} heads do not share {groups} {what} evenly: give a number that divides "
            "the heads"
        )
