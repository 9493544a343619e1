"""Linear maps ``x W^T + b`` by the faster matrix library of this processor.

torch multiplies float32 matrices on x86 with Intel's MKL, which runs AVX2 code on processors of
other makers, even if they have AVX-512.  oneDNN, which torch includes, uses AVX-512 there.  So on
processors of other makers the linear maps of a model use oneDNN, forward and backward.  On Intel's
processors, on GPUs, and in other number formats they use torch's own product.  MKL and oneDNN both
accumulate in float32: results differ by rounding only.

The choice depends on the processor, never on a measurement, so that a resumed training reaches the
same weights to the last digit.  ``FAIRSEQ_COLLAB_MATMUL=torch`` (or ``onednn``) overrides it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from collab_common.provenance import MATMUL_ENV, is_intel

#: Values of the environment variable that chooses the library.
LIBRARIES = ("torch", "onednn")
#: oneDNN's ``x W^T + b``, which torch calls in compiled models; None if this torch lacks it.
ONEDNN_PRODUCT = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


class OneDnnLinear(nn.Linear):
    """``nn.Linear``, parameter for parameter, computed by :func:`linear`."""

    #: The weight in oneDNN's own layout, within :func:`packed_weights`.
    packed: Tensor | None = None

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        # A copy, or a file, has torch's own class: the library is this machine's choice, and
        # torch's converters (quantize_dynamic) know no other.
        return _new_linear, (), self.__dict__

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in) -> (..., out)``."""
        packed = self.packed  # read once: another thread may end its packed_weights
        if packed is not None and can_use_onednn(x, self.weight):
            return _product(x, packed, self.bias)
        return linear(x, self.weight, self.bias)


def _new_linear() -> nn.Linear:
    return nn.Linear.__new__(nn.Linear)


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """Pack the weights for inference; do not change weights inside the context."""
    maps = [module for module in model.modules() if isinstance(module, OneDnnLinear)]
    layers = [module for module in maps if can_use_onednn(module.weight, module.weight)]
    for layer in layers:
        layer.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("packed", None)  # another thread may have done so


def swap_linear(model: nn.Module) -> None:
    """Make the linear maps of ``model`` use oneDNN, in place, if it is this machine's library.

    Parameters and their names stay, and no random number is drawn.

    Raises:
        ValueError: see :func:`matrix_library`.
    """
    if matrix_library() == "onednn":
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = OneDnnLinear


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x W^T + b``: ``(..., in), (out, in), (out) -> (..., out)``."""
    if not can_use_onednn(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and _needs_grad(x, weight, bias):
        # Outside the Function: a view that a Function returns must not change in place.
        x_2d = x.reshape(-1, x.size(-1))
        return _OneDnnProduct.apply(x_2d, weight, bias).view(*x.shape[:-1], -1)
    return _product(x, weight, bias)


@functools.cache
def matrix_library() -> str:
    """Return the library for float32 on this machine's CPU: one of :data:`LIBRARIES`.

    Raises:
        ValueError: the environment variable names another library, or one that torch lacks.
    """
    has_onednn = torch.backends.mkldnn.is_available() and ONEDNN_PRODUCT is not None
    requested = os.environ.get(MATMUL_ENV)
    if requested is None:
        mkl_is_slow = torch.backends.mkl.is_available() and not is_intel()
        return "onednn" if has_onednn and mkl_is_slow else "torch"
    if requested not in LIBRARIES or (requested == "onednn" and not has_onednn):
        allowed = LIBRARIES if has_onednn else LIBRARIES[:1]
        raise ValueError(f"{MATMUL_ENV} is {requested!r}; here it can be {' or '.join(allowed)}")
    return requested


def can_use_onednn(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN can compute this product."""
    return (
        x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel() > 0
        and weight.numel() > 0  # oneDNN has no gradient of a map without outputs
        and not torch.is_autocast_enabled("cpu")
    )


def _needs_grad(*tensors: Tensor | None) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    assert ONEDNN_PRODUCT is not None  # matrix_library has checked it
    return ONEDNN_PRODUCT(x, weight, bias, "none", [], "")


class _OneDnnProduct(torch.autograd.Function):
    """oneDNN's product of ``(N, in)`` with a gradient, which torch does not define for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _product(grad, weight.T) if needs_x else None,
            _product(grad.T, x.T) if needs_weight else None,  # (out, in)
            grad.sum(0) if needs_bias else None,
        )
