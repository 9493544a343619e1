"""Queries, keys and values of every kind of attention, and hooks on all attentions of a model.

    scores_i = q_i(x) k_i(y)^T,     weights_i = softmax(scores_i + mask)

Shapes: inputs ``x (T, B, d)``, ``y (S, B, d_y)``.  The scale of the scores is part of the queries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.building import split_heads
from fairseq_collab.trained.attentions import Attention, attentions

Projection = Callable[[Tensor], Tensor]


def projections(module: Any) -> tuple[Projection, Projection, Projection]:
    """Scaled queries, keys and values, each with the variant's own number of heads.

    ``(T, B, d) -> (B, H, T, e)``, ``(S, B, d_y) -> (B, G, S, e)``, ``(B, G, S, h_v)``.  fairseq's
    own attention has no functions for them; they are built from its projections.
    """
    if isinstance(module, HeadAttention):
        return module.project_query, module.project_key, module.project_value
    heads, scale = module.num_heads, module.scaling
    return (
        lambda x: split_heads(module.q_proj(x) * scale, heads),
        lambda y: split_heads(module.k_proj(y), heads),
        lambda y: split_heads(module.v_proj(y), heads),
    )


def matrix_of(project: Projection, size: int, like: Tensor) -> Tensor:
    """The affine map ``project`` as a matrix ``(H, size + 1, e)``, its constant in the last row."""
    inputs = torch.eye(size + 1, size, dtype=like.dtype, device=like.device)
    outputs = project(inputs.unsqueeze(1))[0]  # (H, size + 1, e)
    constant = outputs[:, -1:]
    return torch.cat([outputs[:, :-1] - constant, constant], dim=1)


def inputs_of(module: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """The input of the queries, and that of keys and values, in a call of an attention."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    query, key = given["query"], given.get("key")
    return query, query if key is None or module.self_attention else key


@contextmanager
def hooked(model: nn.Module, hook: Callable[[Attention], Any]) -> Iterator[None]:
    """Within it, each attention of a model has a hook: ``hook`` adds it and returns its handle.

    fairseq's encoder layers have a fused path around their attention module;
    :mod:`fairseq_compat.fairseq_fixes` closes it.
    """
    with ExitStack() as hooks:
        for attention in attentions(model):
            hooks.enter_context(hook(attention))
        yield
