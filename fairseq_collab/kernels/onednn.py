"""Linear maps ``x W^T + b`` by the faster matrix library of this processor.

torch multiplies float32 matrices on x86 with Intel's MKL, which runs AVX2 code on processors of
other makers, even if they have AVX-512.  oneDNN, which torch includes, uses AVX-512 there.  So on
processors of other makers the linear maps of a model use oneDNN, forward and backward.  On Intel's
processors, on GPUs, and in other number formats they use torch's own product.  Both add in float32:
results differ by rounding only.

The choice depends on the processor, never on a measurement, so that a resumed training reaches the
same weights to the last digit.  ``FAIRSEQ_COLLAB_MATMUL=torch`` (or ``onednn``) overrides it.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from collab_common.provenance import MATMUL, is_intel

#: The environment variable that chooses the library, and its values.
VARIABLE = MATMUL
LIBRARIES = ("torch", "onednn")
#: oneDNN's ``x W^T + b``, which torch calls in compiled models; None if this torch lacks it.
ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


class OneDnnLinear(nn.Linear):
    """``nn.Linear``, parameter for parameter, computed by :func:`linear`."""

    #: The weight in oneDNN's own layout, and the version of the weight that was packed.
    packed: tuple[Tensor, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # torch cannot copy a tensor in a layout of oneDNN's own.
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in) -> (..., out)``."""
        if self.packed is not None and not torch.is_grad_enabled():
            packed, version = self.packed
            if version == self.weight._version and in_float32_on_cpu(x, self.weight):
                return _product(x, packed, self.bias)
        return linear(x, self.weight, self.bias)

    def make_generation_fast_(self, **_options: Any) -> None:
        """Pack the weight.  fairseq calls this before it translates, and forbids training then."""
        weight = self.weight
        if in_float32_on_cpu(weight, weight):
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
            self.packed = (packed, weight._version)


def swap_linear(model: nn.Module) -> None:
    """Make the linear maps of ``model`` use oneDNN, in place, if it is this machine's library.

    Parameters and their names stay; no random number is drawn.  Raises what :func:`matrix_library`
    raises.
    """
    if matrix_library() == "onednn":
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = OneDnnLinear


def restore_linear(model: nn.Module) -> None:
    """Undo :func:`swap_linear`."""
    for module in model.modules():
        if type(module) is OneDnnLinear:
            module.packed = None
            module.__class__ = nn.Linear  # type: ignore[assignment]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b``: ``(..., in), (out, in), (out) -> (..., out)``."""
    if not in_float32_on_cpu(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and _needs_grad(x, weight, bias):
        return _OneDnnProduct.apply(x, weight, bias)
    return _product(x, weight, bias)


@functools.cache
def matrix_library() -> str:
    """The library for float32 on this machine's CPU: one of :data:`LIBRARIES`.

    Raises:
        ValueError: the environment variable names another library, or one that torch lacks.
    """
    has_onednn = torch.backends.mkldnn.is_available() and ONEDNN_LINEAR is not None
    asked = os.environ.get(VARIABLE)
    if asked is None:
        mkl_is_slow = torch.backends.mkl.is_available() and not is_intel()
        return "onednn" if has_onednn and mkl_is_slow else "torch"
    if asked not in LIBRARIES or (asked == "onednn" and not has_onednn):
        known = LIBRARIES if has_onednn else LIBRARIES[:1]
        raise ValueError(f"{VARIABLE} is {asked!r}; here it can be {' or '.join(known)}")
    return asked


def in_float32_on_cpu(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can compute a product here."""
    return (
        x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
    )


def _needs_grad(*tensors: Tensor | None) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    assert ONEDNN_LINEAR is not None  # matrix_library has checked it
    return ONEDNN_LINEAR(x, weight, bias, "none", [], "")


class _OneDnnProduct(torch.autograd.Function):
    """torch has no gradient for oneDNN's product; it is two more products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        rows = grad.reshape(-1, grad.size(-1))  # (N, out)
        inputs = x.reshape(-1, x.size(-1))  # (N, in)
        return (
            _product(grad, weight.T) if for_x else None,
            _product(rows.T, inputs.T) if for_weight else None,  # (out, in)
            rows.sum(0) if for_bias else None,
        )
