"""Linear maps in 8-bit integers: on request (``FAIRSEQ_COLLAB_MATMUL=int8``), in decoding only.

    y = s_x s_w (q_x q_w^T) + b,      q_x = round(x / s_x),  s_x = max |x| / 127  of each row of x
                                      q_w = round(W / s_w),  s_w = max |W| / 127  of each row of W

    x (N, in)   W (out, in)   b (out)   s_x (N, 1)   s_w (out)   y (N, out)

Translations change a little with it.  A row of inputs is a token and has a scale of its own, so
that no translation depends on the sentences beside it.  A model is changed as fairseq prepares it
for translation, after which fairseq forbids training; before, and in validation, nothing is.

The product is oneDNN's, as torch calls it in compiled models, on plain tensors of 8-bit integers.
``torch.ops.quantized.linear_dynamic`` is a little faster, but wants weights of torch's quantised
number formats, which are deprecated (https://github.com/pytorch/pytorch/issues/184982), as is
``torch.ao.quantization``, which would make them.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.kernels.onednn import (
    INT8,
    INT8_LINEAR,
    VARIABLE,
    OneDnnLinear,
    PackedLinear,
    in_float32_on_cpu,
    matrix_library,
)

logger = logging.getLogger(__name__)

#: Smaller weights stay as they are: rounding the inputs takes longer than the product gains.
SMALLEST = 2**18
_LARGEST = 127  # of the integers; -128 is not used, so that both signs are alike


class Int8Linear(PackedLinear):
    """``nn.Linear``, parameter for parameter, in 8 bits once it is made fast."""

    #: The rounded weight in oneDNN's layout, its scales, and the version of the weight it is of.
    packed: tuple[Tensor, Tensor, int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in) -> (..., out)``."""
        here = not torch.is_grad_enabled() and in_float32_on_cpu(x, self.weight)
        if self.packed is None or not here:
            return F.linear(x, self.weight, self.bias)
        if self.packed[2] != self.weight._version:  # loaded anew
            self.make_generation_fast_()
        weight, scales, _ = self.packed
        return int8_linear(x, weight, scales, self.bias)

    def make_generation_fast_(self, **_options: Any) -> None:
        """Called by fairseq before it translates, after which it forbids training."""
        self.packed = (*pack(self.weight), self.weight._version)


def int8_wanted() -> bool:
    """Whether models of ours are to decode in 8 bits; ValueError where they cannot."""
    matrix_library()
    return os.environ.get(VARIABLE) == INT8


def round_linear(model: nn.Module) -> None:
    """If asked for, let the large linear maps of ``model`` become 8-bit ones, in place.

    UserError for a model that is not in float32 on a CPU.
    """
    if not int8_wanted():
        return
    changed = 0
    for module in model.modules():
        if not isinstance(module, nn.Linear) or type(module) not in (nn.Linear, OneDnnLinear):
            continue  # subclasses of others compute something else
        if module.weight.numel() >= SMALLEST:
            if not in_float32_on_cpu(module.weight, module.weight):
                kind = f"{module.weight.dtype} on {module.weight.device.type}"
                what = f"is for models in float32 on a CPU; this one is {kind}"
                raise UserError(what, f"{VARIABLE}={INT8}", f"unset {VARIABLE}")
            module.__class__ = Int8Linear
            changed += 1
    logger.info("%s=%s: %d large linear maps are rounded to 8 bits", VARIABLE, INT8, changed)


@torch.no_grad()
def pack(weight: Tensor) -> tuple[Tensor, Tensor]:
    """``(out, in)`` as oneDNN wants it, and the scale of each of its rows, ``(out)``."""
    rounded, scales = _round_rows(weight)
    return torch.ops.onednn.qlinear_prepack(rounded, None), scales.flatten()


def int8_linear(x: Tensor, weight: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """``(..., in) -> (..., out)``, with what :func:`pack` has made of a weight."""
    assert INT8_LINEAR is not None  # matrix_library has seen to it
    rows, of_rows = _round_rows(x.reshape(-1, x.size(-1)))  # (N, in), (N, 1)
    if rows.size(0) == 1:
        # oneDNN 3.12 takes 40 ms for one row of 256 numbers, a hundred times as long as for two.
        rows = rows.expand(2, -1).contiguous()
    zeros = torch.zeros(scales.size(0), dtype=torch.int32)
    product = INT8_LINEAR(
        rows, 1.0, 0, weight, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )  # (N, out)
    product = product[: of_rows.size(0)]
    y = product * of_rows if bias is None else torch.addcmul(bias, product, of_rows)
    return y.view(*x.shape[:-1], scales.size(0))


def _round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers and scales of each row: ``(N, n) -> (N, n), (N, 1)``.

    What is not finite makes its row's scale so, and with it the product.
    """
    scales = x.abs().amax(dim=1, keepdim=True) / _LARGEST
    scales.clamp_(min=torch.finfo(x.dtype).tiny)  # a row of zeros
    return (x / scales).round_().to(torch.int8), scales
