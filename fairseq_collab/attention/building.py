"""Building blocks of variants: projections, initial weights, scales, checks of sizes.

Initial weights are drawn in fairseq's order: a seed gives fairseq's weights.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

#: Initial projections: fairseq's at every size, or with the jump in gain of the authors' fork of
#: arXiv 2006.16362 (gain 1/sqrt(2) where all projections are square, and else 1).
INITS = ("constant", "fork")
#: How scores are scaled: by the size of the scored vectors, or by the model's size per head.
SCALES = ("key", "embed")


# ---- projections ---------------------------------------------------------------------------------


def make_linear(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    """Make a linear map with a trained bias, or with a constant zero in place of it.

    The zero is for callers that read ``.bias.shape`` (fairseq's encoder layer); it is neither a
    parameter nor part of the state dict.  Empty weights (no heads) are buffers, too, as they
    never get a gradient.
    """
    if in_features * out_features:
        projection = nn.Linear(in_features, out_features, bias=bias)
    else:
        projection = _linear_without_draw(in_features, out_features, bias)
        _make_zero(projection, "weight", out_features, in_features)
        if bias:
            projection.bias = nn.Parameter(torch.zeros(out_features))
    if not bias or not out_features:
        _make_zero(projection, "bias", out_features)
    return projection


def projection_of(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Make a trained projection from ``weight (out, in)`` and ``bias (out)``; draw no numbers."""
    projection = _linear_without_draw(weight.size(1), weight.size(0))
    projection.weight = nn.Parameter(weight.detach().clone())
    projection.bias = nn.Parameter(bias.detach().clone())
    return projection


def _linear_without_draw(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    """Make a linear map whose parameters the caller replaces; torch warns of making empty ones."""
    projection = skip_init(nn.Linear, 1, 1, bias=bias)
    projection.in_features, projection.out_features = in_features, out_features
    return projection


def _make_zero(projection: nn.Linear, name: str, *shape: int) -> None:
    """Replace a parameter by a constant outside the state dict."""
    delattr(projection, name)
    projection.register_buffer(name, torch.zeros(shape), persistent=False)


def dequantized(parameter: Any) -> Tensor:
    """Return a weight or bias, also where torch's ``quantize_dynamic`` made it a method."""
    return parameter().dequantize() if callable(parameter) else parameter


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """View ``(T, B, H * h)`` as ``(B, H, T, h)``."""
    return x.unflatten(2, (num_heads, -1)).permute(1, 2, 0, 3)


def merge_heads(x: Tensor) -> Tensor:
    """Return ``(B, H, T, h)`` as ``(T, B, H * h)``."""
    return x.permute(2, 0, 1, 3).flatten(2)


def init_projection(projection: nn.Linear, small: bool) -> None:
    """Initialise a projection as fairseq does: Xavier, with gain 1/sqrt(2) if ``small``, else 1.

    fairseq's gain is 1/sqrt(2) where all inputs of the attention have size ``d``.
    """
    nn.init.xavier_uniform_(projection.weight, gain=1 / math.sqrt(2) if small else 1.0)


def init_output(projection: nn.Linear) -> None:
    """Initialise an output projection as fairseq does: Xavier, bias zero."""
    nn.init.xavier_uniform_(projection.weight)
    nn.init.zeros_(projection.bias)


# ---- sizes and choices ---------------------------------------------------------------------------


def scaling(scale: str, embed_dim: int, num_heads: int, scored_size: float) -> float:
    """Return the factor of the scores: ``scored_size^-0.5``, or ``(d/H)^-0.5`` for ``embed``."""
    check_choice("attention scale", scale, SCALES)
    return (scored_size if scale == "key" else embed_dim / max(num_heads, 1)) ** -0.5


def check_sizes(least: int = 1, most: float = math.inf, **sizes: int) -> None:
    """Raise ValueError, with the name of the size, for a size below ``least`` or above ``most``."""
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name} is {size}; it must be at least {least}")
        if size > most:
            problem = f"{name} is {size}; it must be at most {most}"
            raise ValueError(f"{problem}: wider heads cost more and compute nothing else")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError, with the choices, unless ``value`` is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def head_size(size: int | None, embed_dim: int, num_heads: int) -> int:
    """Return ``size``, or else ``d/H``, which must be a whole number; ``d`` without heads."""
    if size is None and num_heads and embed_dim % num_heads:
        raise ValueError(
            f"the model size {embed_dim} does not divide by {num_heads} heads: "
            "change one of them, or give the head sizes"
        )
    size = embed_dim // max(num_heads, 1) if size is None else size
    check_sizes(head_size=size)
    return size


def check_shared_evenly(num_heads: int, groups: int, shared: str) -> None:
    """Raise ValueError unless ``num_heads`` is a multiple of ``groups``."""
    if num_heads % groups:
        raise ValueError(
            f"{num_heads} heads do not share {groups} {shared} evenly: give a number that divides "
            "the heads"
        )
