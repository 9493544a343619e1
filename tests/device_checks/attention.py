"""Each attention type on the device, against the same weights in float64 on the CPU.

    error(y) = max |y - y64| / max |y64|

``y64`` is computed from the same rounded weights and inputs, so that only the arithmetic of the
device and of its number format is measured.  A wrong mask or scale has an error of the order of 1.
Shapes: ``d`` 64, ``H`` 4, ``T`` queries, ``S`` keys, ``B`` 3 sentences, two of them padded.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
import toy
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from collab_lab.trained.attentions import attentions
from fairseq_collab.attention import base
from fairseq_collab.models.base import Variant
from fairseq_collab.models.variants import VARIANTS

from .core import Check, Place, expect, speeds

#: Largest error that rounding explains: some tens of roundings of each format.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
D, H, B = 64, 4, 3
#: Queries and keys: a few, and enough for the fused kernel, on a CPU, too.
FEW, MANY = (48, 40), (256, 256)
#: torch's kernels without a matrix of scores: where none can be used, these alone raise an error.
FUSED = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)


def checks(place: Place) -> Iterator[Check]:
    """Attentions of each kind in each format, step by step and with the fused kernel."""
    for dtype, bound in TOLERANCE.items():
        name = str(dtype).removeprefix("torch.")
        for kind in VARIANTS[:1] if place.quick else VARIANTS:
            run = partial(attention_errors, kind, place.device, dtype, bound)
            yield Check(f"attention {kind.name} {name}", run)
    for positions in (32,) if place.quick else (32, 64, 128, 256):
        run = partial(speed_of_the_fused_kernel, positions, place)
        yield Check(f"speed of the fused kernel, {positions} positions", run)


@functools.cache
def model_of(kind: str) -> nn.Module:
    """Random, with biases and norms that are not 0 and 1, in eval mode; not to be changed."""
    sizes = {f"{stack}_embed_dim": D for stack in ("encoder", "decoder")}
    sizes |= {f"{stack}_attention_heads": H for stack in ("encoder", "decoder")}
    torch.manual_seed(1)
    model = toy.model(f"transformer_{kind}", **sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def error(found: Tensor, expected: Tensor) -> float:
    """See above; infinite for NaN."""
    apart = (found.double().cpu() - expected).abs().max() / expected.abs().max()
    return float(apart.nan_to_num(float("inf")))


def within(errors: dict[str, float], bound: float) -> str:
    """The largest error, or AssertionError that names it."""
    worst = max(errors, key=lambda name: errors[name])
    expect(errors[worst] <= bound, f"error {errors[worst]:.2g} of {worst}, at most {bound:g}")
    return f"largest error {errors[worst]:.1g} of at most {bound:g}"


def attention_errors(kind: Variant, device: torch.device, dtype: torch.dtype, bound: float) -> str:
    """Of each attention type, and with torch's fused kernel, which must be used."""
    errors = {}
    for attention in attentions(model_of(kind.name)):
        type_, module = attention.type, attention.module
        if attention.layer == 0:
            errors |= errors_of(module, type_, FEW, device, dtype)
    fused = mock.patch.object(base, "fused_heads", wraps=base.fused_heads)
    with fused as kernel, sdpa_kernel([*FUSED]):
        errors |= errors_of(module, f"fused {type_}", MANY, device, dtype)
    expect(kernel.called or not module.may_fuse, "the fused kernel is not used")
    return within(errors, bound)


def speed_of_the_fused_kernel(positions: int, place: Place) -> str:
    """Forward and backward of a decoder's self-attention: 16,384 tokens, d = 512, 8 heads."""
    d, tokens = (D, 64) if place.quick else (512, 16_384)
    dtype = torch.float16 if place.name == "cuda" else torch.float32
    model = toy.model(
        "transformer_headsize_n", decoder_embed_dim=d, decoder_attention_heads=d // 64
    )
    module = model.decoder.layers[0].self_attn.to(place.device, dtype)
    x = torch.randn(positions, tokens // positions, d, device=place.device, dtype=dtype)
    future = torch.ones(positions, positions, dtype=torch.bool, device=place.device).triu(1)

    def run(fuse: bool, _: Any) -> None:
        with mock.patch.object(base, "can_fuse", return_value=fuse):
            output, _ = module(x.requires_grad_(), x, x, attn_mask=future, need_weights=False)
        torch.autograd.grad(output.float().sum(), x)

    programs = {"ordinary": partial(run, False), "fused": partial(run, True)}
    return speeds(programs, None, place)


def errors_of(
    module: Any, type_: str, sizes: tuple[int, int], device: torch.device, dtype: torch.dtype
) -> dict[str, float]:
    """Of outputs without and with weights, of weights, and of the gradient of the query."""
    exact = copy.deepcopy(module).to(dtype).double()
    here = copy.deepcopy(module).to(device, dtype)
    queries, keys = sizes if type_.endswith("cross") else sizes[:1] * 2
    query, key = (torch.randn(n, B, D).to(dtype) for n in (queries, keys))
    padding = torch.zeros(B, keys, dtype=torch.bool)
    padding[1, -3:] = padding[2, -9:] = True
    future = torch.ones(queries, queries, dtype=torch.bool).triu(1) if type_ == "decoder" else None
    cross = type_.endswith("cross")
    expected = results(exact, query.double(), key.double() if cross else None, padding, future)
    masks = (padding.to(device), None if future is None else future.to(device))
    found = results(here, query.to(device), key.to(device) if cross else None, *masks)
    return {f"{type_}, {name}": error(found[name], expected[name]) for name in expected}


def results(
    module: Any, query: Tensor, key: Tensor | None, padding: Tensor, future: Tensor | None
) -> dict[str, Tensor]:
    """Outputs, fused if possible, and step by step with weights."""
    query = query.clone().requires_grad_()
    inputs = (query, *([query if key is None else key] * 2))
    masks = {"key_padding_mask": padding, "attn_mask": future}
    output, _ = module(*inputs, **masks, need_weights=False)
    explicit, weights = module(*inputs, **masks, need_head_weights=True)
    direction = torch.linspace(-1, 1, output.numel(), device=output.device).view_as(output)
    (gradient,) = torch.autograd.grad((output * direction.to(output.dtype)).sum(), query)
    found = {"output": output, "output with weights": explicit, "gradient": gradient}
    found["weights"] = weights
    return {name: tensor.detach() for name, tensor in found.items()}
