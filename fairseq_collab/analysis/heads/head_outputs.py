"""The outputs of all heads in a forward pass, for gradients with respect to them.

    Att(x) = [head_1, ..., head_H] Wo^T + bo,      head_i (T, B, h_v)

Caught is the concatenation, where it enters ``out_proj``: for every kind of attention, fairseq's
own included.

Shapes: ``B`` sentences, ``T`` queries, ``H`` heads, ``h_v`` size of a head's value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fairseq_collab.analysis.heads.weights import ask_for_weights
from fairseq_collab.analysis.scores import Attention, attentions
from fairseq_collab.models.layers import SITES, Site


@contextmanager
def head_outputs(model: nn.Module) -> Iterator[dict[Attention, Tensor]]:
    """While it lasts, a forward pass fills the dictionary with outputs ``(T, B, H * h_v)``.

    They are part of the graph of gradients, from the first attention on.

    Raises:
        TypeError: see :func:`fairseq_collab.analysis.scores.attentions`.
    """
    seen: dict[Attention, Tensor] = {}
    handles = [handle for found in attentions(model) for handle in _catch(found, seen)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _catch(attention: Attention, seen: dict[Attention, Tensor]) -> Iterator[RemovableHandle]:
    def keep(module: Any, args: tuple[Tensor]) -> None:
        (output,) = args
        if not output.requires_grad:
            output.requires_grad_()
        seen[attention] = output

    yield ask_for_weights(attention)
    yield attention.module.out_proj.register_forward_pre_hook(keep)


@contextmanager
def trained_alone(model: nn.Module, which: Callable[[str], bool]) -> Iterator[list[nn.Parameter]]:
    """While it lasts, only parameters whose name is one of ``which`` have gradients; gives them."""
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    chosen = [parameter for name, parameter in model.named_parameters() if which(name)]
    for parameter, _ in before:
        parameter.requires_grad_(False)
    for parameter in chosen:
        parameter.requires_grad_()
    try:
        yield chosen
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)


def per_head(x: Tensor, num_heads: int) -> Tensor:
    """The sum over each head's neurons: ``(T, B, H * h_v) -> (T, B, H)``."""
    return x.unflatten(2, (num_heads, -1)).sum(-1)


def by_site(values: Mapping[Attention, Tensor]) -> dict[Site, list[list[float]]]:
    """Numbers of all heads, ``(H,)`` for each attention, by site and layer."""
    ordered = sorted(values, key=lambda attention: attention.layer)
    return {
        site: [values[found].tolist() for found in ordered if found.site == site] for site in SITES
    }
