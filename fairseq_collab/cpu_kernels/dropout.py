"""Dropout on a CPU with sixteen random bits per element.

    y = x * keep / r        keep ~ Bernoulli(r) per element,    r = 1 - p to within 2^-17

torch draws one random number per element, in one thread: a tenth to a fifth of an update of a small
model.  Here torch's generator draws 64 bits for four elements.  Seeds and resumed trainings work as
with torch's dropout, but a seed drops other elements.  Other devices use torch's dropout.
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

#: Values of sixteen bits: an element is kept for ``kept`` of them.
LEVELS = 2**16
_NUMBERS = 4  # elements per word of 64 bits
_LEAST = torch.iinfo(torch.int64).min


class Dropout(FairseqDropout):
    """fairseq's dropout, with cheaper random numbers on a CPU."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drop elements of ``x``, of any shape."""
        drops = self.training or self.apply_during_inference
        keep_levels = round((1 - self.p) * LEVELS)
        if not drops or x.device.type != "cpu" or not 0 < keep_levels < LEVELS:
            return super().forward(x, inplace)
        return _Dropped.apply(x, keep_levels)


def swap_dropout(model: nn.Module) -> None:
    """Replace every dropout of ``model`` by :class:`Dropout`, in place."""
    for module in model.modules():
        if type(module) is FairseqDropout:
            module.__class__ = Dropout


def _keep_mask(x: Tensor, keep_levels: int) -> Tensor:
    """Return bytes: 1 for each element of ``x`` that is kept, else 0."""
    words = torch.empty(-(-x.numel() // _NUMBERS), dtype=torch.int64).random_(_LEAST, None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)  # -2^15 to 2^15 - 1
    return (bits < keep_levels - LEVELS // 2).view(torch.uint8)


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keep_levels: int) -> Tensor:
        keep = _keep_mask(x, keep_levels)
        ctx.save_for_backward(keep)
        ctx.scale = LEVELS / keep_levels
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (grad * keep).mul_(ctx.scale), None
