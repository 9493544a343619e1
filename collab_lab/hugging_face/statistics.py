"""Statistics of a Hugging Face model's attentions: see :mod:`collab_lab.statistics.moments`.

``L`` is the product of the model's output with a random vector, so that prices predict the output's
squared error (Gauss-Newton).  An output that is a single number counts as the loss itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.statistics.moments import Statistics, Sums, at_least_float32
from collab_lab.trained.contexts import in_evaluation

#: The random seed of the vectors.
SEED = 1


def collect(
    model: nn.Module,
    heads: Mapping[str, nn.Module],
    inputs: Iterable[Mapping[str, Any]],
    seed: int = SEED,
) -> dict[str, Statistics]:
    """Collect the statistics of attentions, by name; ``heads`` come from :func:`.trained_heads`.

    They are sums over ``inputs``, so their prices can only be compared with each other.  A query
    that has no effect on the output, such as one of padding, does not count.
    """
    sums = {name: Sums(attention) for name, attention in heads.items()}
    generator = torch.Generator().manual_seed(seed)
    calls: list[tuple[Any, ...]] = []
    with ExitStack() as until, in_evaluation(model), torch.enable_grad():
        until.enter_context(at_least_float32(model, *heads.values()))
        for module in pretrained(model):
            until.callback(module.set_attn_implementation, module.config._attn_implementation)
            module.set_attn_implementation("eager")
        for name in heads:
            hook = partial(_record, calls, name)
            handle = model.get_submodule(name).register_forward_hook(hook, with_kwargs=True)
            until.enter_context(handle)
        any_batch = False
        for batch in bar("prices", inputs):
            calls.clear()
            any_batch = True
            batch = {name: as_float32(value) for name, value in batch.items()}
            output = model(**batch)
            scalar = random_product(output, batch, generator)
            added = [zeros for *_, zeros in calls]
            gradients = torch.autograd.grad(
                scalar, added, allow_unused=True, materialize_grads=True
            )
            for (name, x, y, mask, _), gradient in zip(calls, gradients, strict=True):
                gradient = gradient.transpose(0, 1)  # (T, B, d)
                sums[name].add(x, y, gradient.any(-1), gradient, mask)
    if not any_batch:
        raise UserError("has no batch", "`inputs`", "give one at least")
    for name, total in sums.items():
        if not any(total.queries):
            raise UserError("it has no effect on the output", name, "give inputs that it reads")
    return {name: total.result(num_targets=1) for name, total in sums.items()}


def as_float32(value: Any) -> Any:
    """An input, converted from half precision to float32 like the weights."""
    half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value


def _record(
    calls: list[Any], name: str, module: nn.Module, args: Any, kwargs: Any, output: Any
) -> Any:
    """Add inputs and masks of a call to ``calls``, and zeros that are added to its output.

    A model may call an attention several times, as one of two sentences that it compares.
    """
    positional = zip(inspect.signature(module.forward).parameters, args, strict=False)
    arguments = dict(positional) | kwargs
    x, y = arguments["hidden_states"], arguments.get("key_value_states")
    x, y = (states.detach().transpose(0, 1) for states in (x, x if y is None else y))
    # Gradients of zeros exist even if all weights are frozen.
    zeros = torch.zeros_like(output[0], requires_grad=True)  # (B, T, d)
    calls.append((name, x, y, arguments.get("attention_mask"), zeros))
    return output[0] + zeros, *output[1:]


def pretrained(model: nn.Module) -> list[Any]:
    """The modules of a model that prepare masks."""
    return [module for module in model.modules() if hasattr(module, "set_attn_implementation")]


def random_product(output: Any, batch: Mapping[str, Any], generator: torch.Generator) -> Tensor:
    """The product of a model's first output with a random vector, without padding; or a loss."""
    states = output if isinstance(output, Tensor) else output[0]
    if not states.ndim:
        return states
    random = torch.randn(states.shape, generator=generator).to(states)
    mask = batch.get(f"{'decoder_' * ('decoder_input_ids' in batch)}attention_mask")
    if mask is not None and mask.shape == states.shape[:-1]:
        random = random * mask.unsqueeze(-1)
    return (states * random).sum()
