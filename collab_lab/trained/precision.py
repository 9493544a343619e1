"""Data types in which weights are saved."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

#: Precisions in which a checkpoint takes half of the bytes.
HALF = {torch.float16, torch.bfloat16}


def in_precisions(
    weights: Mapping[str, Tensor], precisions: Mapping[str, torch.dtype]
) -> dict[str, Tensor]:
    """The weights, with those of half precision converted to it; tied weights stay tied."""
    made: dict[Any, Tensor] = {}

    def saved(name: str, weight: Tensor) -> Tensor:
        precision = precisions[name]
        if not weight.is_floating_point() or precision not in HALF:
            return weight
        key = weight.data_ptr(), weight.shape, precision
        return made.setdefault(key, weight.to(precision))

    return {name: saved(name, weight) for name, weight in weights.items()}


def precision_of(name: str, precisions: Mapping[str, torch.dtype]) -> torch.dtype:
    """The data type to save a weight in; a new weight takes the widest one near it in the model."""
    if name in precisions:
        return precisions[name]
    module = name
    while module:
        module = module.rpartition(".")[0]
        inside = f"{module}." if module else ""
        if found := [precision for n, precision in precisions.items() if n.startswith(inside)]:
            return reduce(torch.promote_types, found)
    return torch.float32
