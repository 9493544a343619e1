"""Projections of inputs: linear maps with or without bias, and their outputs by head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init


def linear(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    """A linear map with a trained bias, or with a constant zero in place of it.

    The zero is for callers that read ``.bias.shape`` (fairseq's encoder layer); it is neither a
    parameter nor part of the state dict.  Nor is a weight or bias without elements, as in an
    attention without heads: no gradient would ever reach it.
    """
    if in_features * out_features:
        projection = nn.Linear(in_features, out_features, bias=bias)
    else:
        projection = skip_init(nn.Linear, in_features, out_features, bias=bias)
        _make_zero(projection, "weight", out_features, in_features)
        if bias:
            nn.init.zeros_(projection.bias)
    if not bias or not out_features:
        _make_zero(projection, "bias", out_features)
    return projection


def projection_of(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A trained projection that starts from ``weight (out, in)`` and ``bias (out)``, no draw."""
    projection = skip_init(nn.Linear, weight.size(1), weight.size(0), bias=bias is not None)
    projection.weight = nn.Parameter(weight.detach().clone())
    if bias is None:
        _make_zero(projection, "bias", weight.size(0))
    else:
        projection.bias = nn.Parameter(bias.detach().clone())
    return projection


def _make_zero(projection: nn.Linear, name: str, *shape: int) -> None:
    """A constant in place of a parameter, outside the state dict."""
    delattr(projection, name)
    projection.register_buffer(name, torch.zeros(shape), persistent=False)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(T, B, H * h) -> (B, H, T, h)``, without a copy."""
    return x.unflatten(2, (num_heads, -1)).permute(1, 2, 0, 3)


def by_head(projection: nn.Linear, heads: int) -> tuple[Tensor, Tensor]:
    """Weights ``(heads, h, in)`` and biases ``(heads, h)`` of stacked projections."""
    return projection.weight.unflatten(0, (heads, -1)), projection.bias.unflatten(0, (heads, -1))
