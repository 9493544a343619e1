"""Statistics of the attentions of a Hugging Face model, for prices.

Without a loss, prices are of the squared error of the model's output: ``G`` is the gradient of its
product with a random vector, whose second moments are those of Gauss-Newton.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from collab_common.progress import bar
from fairseq_collab.prices.statistics import Statistics, Sums
from fairseq_collab.trained.attentions import HeadMaps

#: A scalar from the output of a model for a batch.
Loss = Callable[[Any], Tensor]


def collect(
    model: nn.Module,
    heads: Mapping[str, nn.Module],
    inputs: Iterable[Mapping[str, Any]],
    loss: Loss | None,
    seed: int,
) -> dict[str, Statistics]:
    """Statistics of attentions by name, summed over batches; ``heads`` as :func:`.trained_heads`.

    A query whose output has no effect, such as padding's, is not counted.
    """
    sums = {name: Sums(HeadMaps.of(one)) for name, one in heads.items()}
    chance = torch.Generator().manual_seed(seed)
    calls: dict[str, tuple[Tensor, ...]] = {}
    with ExitStack() as changes:
        changes.enter_context(measuring(model))
        for name in heads:
            hook = partial(_record, calls, name)
            handle = model.get_submodule(name).register_forward_hook(hook, with_kwargs=True)
            changes.enter_context(handle)
        for batch in bar("prices", inputs):
            calls.clear()
            output = model(**batch)
            scalar = random_product(output, batch, chance) if loss is None else loss(output)
            outputs = [call[-1] for call in calls.values()]
            gradients = torch.autograd.grad(
                scalar, outputs, allow_unused=True, materialize_grads=True
            )
            for (name, (x, y, mask, _)), gradient in zip(calls.items(), gradients, strict=True):
                gradient = gradient.transpose(0, 1)  # (T, B, d)
                sums[name].add(x, y, gradient.any(-1), gradient, mask)
    for name, each in sums.items():
        if not each.queries:
            what = "no output of the model depends on it"
            raise UserError(what, name, "give inputs that it reads, or leave it out")
    # Prices are compared with each other alone.
    return {name: each.result(targets=1) for name, each in sums.items()}


def _record(
    calls: dict[str, Any], name: str, module: nn.Module, args: Any, kwargs: Any, output: Any
) -> Any:
    """Add inputs, mask and output ``(B, T, d)`` of a call to ``calls``."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})
    x, mask = given["hidden_states"], given.get("attention_mask")
    y = given.get("key_value_states")
    x, y = (one.detach().transpose(0, 1) for one in (x, x if y is None else y))
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask  # true where a query may look
    # Added to the output: there is a gradient even if all weights are frozen.
    nothing = torch.zeros_like(output[0], requires_grad=True)
    calls[name] = x, y, mask, nothing
    return output[0] + nothing, *output[1:]


@contextmanager
def measuring(model: nn.Module) -> Iterator[None]:
    """Within it, a model is in evaluation mode, prepares the masks of "eager" and has gradients."""
    training, models = model.training, pretrained(model)
    implementations = [one.config._attn_implementation for one in models]
    model.eval()
    try:
        for one in models:
            one.set_attn_implementation("eager")
        with torch.enable_grad():
            yield
    finally:
        model.train(training)
        for one, implementation in zip(models, implementations, strict=True):
            one.set_attn_implementation(implementation)


def pretrained(model: nn.Module) -> list[Any]:
    """The modules of ``model`` that prepare masks."""
    return [one for one in model.modules() if hasattr(one, "set_attn_implementation")]


def random_product(output: Any, batch: Mapping[str, Any], chance: torch.Generator) -> Tensor:
    """The product of a model's first output with a random vector, without padding."""
    states = output if isinstance(output, Tensor) else output[0]
    random = torch.randn(states.shape, generator=chance).to(states)
    side = "decoder_" if "decoder_input_ids" in batch else ""
    mask = batch.get(f"{side}attention_mask")
    if mask is not None and mask.shape == states.shape[:-1]:
        random = random * mask.unsqueeze(-1)
    return (states * random).sum()
