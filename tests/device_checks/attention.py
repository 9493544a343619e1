"""Each attention and each model on the device, against the same weights in float64 on the CPU.

    error(y) = max |y - y64| / max |y64|

``y64`` is computed from the same rounded weights and inputs, so that only the arithmetic of the
device and of its number format is measured.  A wrong mask or scale has an error of the order of 1.
Shapes: ``d`` 64, ``H`` 4, ``T`` 48 queries, ``S`` keys, ``B`` 3 sentences, two of them padded.
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
from toy_language_models import language_model

from fairseq_collab.attention import heads
from fairseq_collab.models.base import Family
from fairseq_collab.models.base import Variant as Kind
from fairseq_collab.models.language_models import LANGUAGE_MODEL
from fairseq_collab.models.translation import TRANSLATION
from fairseq_collab.models.variants import VARIANTS
from fairseq_collab.trained.attentions import attentions

from .core import Check, Place, expect

#: Largest error that rounding explains: some tens of roundings of each format.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
D, H, T, S, B = 64, 4, 48, 40, 3
#: Keys of a case that the fused kernel takes on a CPU, too.
MANY = 256
#: The builder of a family's toy models, and their stacks.
BUILDERS = {
    TRANSLATION.prefix: (toy.model, ("encoder", "decoder")),
    LANGUAGE_MODEL.prefix: (language_model, ("decoder",)),
}


def checks(place: Place) -> Iterator[Check]:
    """Each attention, the fused kernel, then whole models."""
    for dtype, bound in TOLERANCE.items():
        name = str(dtype).removeprefix("torch.")
        for kind in VARIANTS:
            run = partial(attention_errors, kind, place.device, dtype, bound)
            yield Check(f"attention {kind.name} {name}", run)
        yield Check(f"fused kernel {name}", partial(fused_errors, place.device, dtype, bound))
        for kind in VARIANTS:
            for family in (TRANSLATION, LANGUAGE_MODEL):
                if family not in kind.families:
                    continue
                run = partial(model_errors, kind, family, place.device, dtype, bound)
                yield Check(f"model {family.prefix}{kind.name} {name}", run)


@functools.cache
def model_of(prefix: str, kind: str) -> nn.Module:
    """Random, with biases and norms that are not 0 and 1, in evaluation; not to be changed."""
    build, stacks = BUILDERS[prefix]
    sizes = {f"{stack}_embed_dim": D for stack in stacks}
    sizes |= {f"{stack}_attention_heads": H for stack in stacks}
    torch.manual_seed(1)
    model = build(f"{prefix}{kind}", **sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def error(found: Tensor, expected: Tensor) -> float:
    """See above; infinite where anything is not a number."""
    apart = (found.double().cpu() - expected).abs().max() / expected.abs().max()
    return float(apart.nan_to_num(float("inf")))


def within(errors: dict[str, float], bound: float) -> str:
    """The largest error, or AssertionError that names it."""
    worst = max(errors, key=lambda name: errors[name])
    expect(errors[worst] <= bound, f"error {errors[worst]:.2g} of {worst}, at most {bound:g}")
    return f"largest error {errors[worst]:.1g} of at most {bound:g}"


# ---- attention -----------------------------------------------------------------------------------


def attention_errors(kind: Kind, device: torch.device, dtype: torch.dtype, bound: float) -> str:
    """Outputs, weights and gradients of the attentions of each site."""
    model, errors = model_of(kind.families[0].prefix, kind.name), {}
    for site, layer, module, _ in attentions(model):
        if layer == 0:
            errors |= errors_of(module, site, S if site == "cross" else T, device, dtype)
    return within(errors, bound)


def fused_errors(device: torch.device, dtype: torch.dtype, bound: float) -> str:
    """The same where torch's fused kernel is used, and that it is, for each kind of heads."""
    errors, watched = {}, []
    for kind in VARIANTS:
        module = attentions(model_of(kind.families[0].prefix, kind.name))[-1].module
        site = "cross" if module.encoder_decoder_attention else "decoder"
        with mock.patch.object(heads, "fused_heads", wraps=heads.fused_heads) as kernel:
            found = errors_of(module, site, MANY, device, dtype, queries=MANY)
        expect(kernel.called or not module.may_fuse, f"not used by {kind.name}")
        watched += [kind.name] * (not module.may_fuse)
        errors |= {f"{kind.name}, {name}": value for name, value in found.items()}
    alone = f"; never used by {', '.join(watched)}" if watched else ""
    return within(errors, bound) + alone


def errors_of(
    module: Any, site: str, keys: int, device: torch.device, dtype: torch.dtype, queries: int = T
) -> dict[str, float]:
    """Of outputs without and with weights, of weights, and of the gradient of the query."""
    exact = copy.deepcopy(module).to(dtype).double()
    here = copy.deepcopy(module).to(device, dtype)
    query, key = (torch.randn(n, B, D).to(dtype) for n in (queries, keys))
    padding = torch.zeros(B, keys, dtype=torch.bool)
    padding[1, -3:] = padding[2, -9:] = True
    future = torch.ones(queries, queries, dtype=torch.bool).triu(1) if site == "decoder" else None
    expected = results(exact, query.double(), key.double(), padding, future)
    masks = (padding.to(device), None if future is None else future.to(device))
    found = results(here, query.to(device), key.to(device), *masks)
    return {f"{site}, {name}": error(found[name], expected[name]) for name in expected}


def results(
    module: Any, query: Tensor, key: Tensor, padding: Tensor, future: Tensor | None
) -> dict[str, Tensor]:
    """What an attention gives, fused if it may be, and step by step with its weights."""
    query = query.clone().requires_grad_()
    inputs = (query, query, query) if module.self_attention else (query, key, key)
    masks = {"key_padding_mask": padding, "attn_mask": future}
    output, _ = module(*inputs, **masks, need_weights=False)
    explicit, weights = module(*inputs, **masks, need_head_weights=True)
    direction = torch.linspace(-1, 1, output.numel(), device=output.device).view_as(output)
    (gradient,) = torch.autograd.grad((output * direction.to(output.dtype)).sum(), query)
    found = {"output": output, "output beside weights": explicit, "gradient": gradient}
    found["weights"] = weights
    return {name: tensor.detach() for name, tensor in found.items()}


# ---- models --------------------------------------------------------------------------------------


@torch.no_grad()
def model_errors(
    kind: Kind, family: Family, device: torch.device, dtype: torch.dtype, bound: float
) -> str:
    """Logits of the toy batch ``(B, T, vocabulary)``."""
    model = model_of(family.prefix, kind.name)
    batch = toy.batch()
    if family is not TRANSLATION:
        batch = {"src_tokens": batch["prev_output_tokens"]}
    exact = copy.deepcopy(model).to(dtype).double()
    here = copy.deepcopy(model).to(device, dtype)
    found, _ = here(**{name: tensor.to(device) for name, tensor in batch.items()})
    expected, _ = exact(**batch)
    return within({"logits": error(found, expected)}, bound)
