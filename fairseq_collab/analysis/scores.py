"""What the heads of a model score with, as weights and on a sentence, for every kind of attention.

    logits_i = q_i(x) k_i(y)^T = [x 1] A_i B_i^T [y 1]^T,     weights_i = softmax(logits_i + mask)

Shapes: inputs ``x (T, d)``, ``y (S, d_y)``; factors ``A (H, d + 1, e)``, ``B (H, d_y + 1, e)``,
whose last rows are the biases; logits ``(B, H, T, S)``, before mask and softmax.  The scale of the
scores is part of ``A``; it changes neither ranks nor shares of energy.

A bias of a projection adds no rank: ``q_i(x) = x Wq_i^T + bq_i`` still has ``h_qk`` columns, and so
``logits_i`` has rank ``h_qk`` at most.  A content score (collaborative heads with
``--attention-bias content``) is one more column, and adds one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.projections import split_heads
from fairseq_collab.attention.scores import for_each_head, head_scores
from fairseq_collab.trained.attentions import Attention, attentions

Projection = Callable[[Tensor], Tensor]


def projections(module: Any) -> tuple[Projection, Projection, Projection]:
    """Scaled queries, keys and values, each the variant's own number of heads.

    ``(T, B, d) -> (B, H, T, e)``, ``(S, B, d_y) -> (B, G, S, e)``, ``(B, G, S, h_v)``.  fairseq's
    own attention has no such functions; these are built from its projections.
    """
    if isinstance(module, HeadAttention):
        return module.project_query, module.project_key, module.project_value
    heads, scale = module.num_heads, module.scaling
    return (
        lambda x: split_heads(module.q_proj(x) * scale, heads),
        lambda y: split_heads(module.k_proj(y), heads),
        lambda y: split_heads(module.v_proj(y), heads),
    )


def logits(module: Any, x: Tensor, y: Tensor) -> Tensor:
    """All heads' scores before mask and softmax: ``(T, B, d), (S, B, d_y) -> (B, H, T, S)``."""
    project_query, project_key, _ = projections(module)
    return head_scores(project_query(x), project_key(y))


def factors(module: Any) -> tuple[Tensor, Tensor]:
    """``A (H, d + 1, e)`` and ``B (H, d_y + 1, e)``, biases in the last rows."""
    project_query, project_key, _ = projections(module)
    a = matrix_of(project_query, module.embed_dim, module.k_proj.weight)
    b = matrix_of(project_key, module.kdim, module.k_proj.weight)
    return a, for_each_head(b.unsqueeze(0), len(a))[0]


def matrix_of(project: Projection, size: int, like: Tensor) -> Tensor:
    """The affine map ``project`` as a matrix ``(H, size + 1, e)``, its constant in the last row."""
    inputs = torch.eye(size + 1, size, dtype=like.dtype, device=like.device)
    outputs = project(inputs.unsqueeze(1))[0]  # (H, size + 1, e)
    constant = outputs[:, -1:]
    return torch.cat([outputs[:, :-1] - constant, constant], dim=1)


def inputs_of(module: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """What queries, and what keys and values come from, in a call of an attention."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    query, key = given["query"], given.get("key")
    return query, query if key is None or module.self_attention else key


@contextmanager
def hooked(model: nn.Module, hook: Callable[[Attention], Any]) -> Iterator[None]:
    """While it lasts, each attention of a model has a hook: ``hook`` adds it, returns its handle.

    fairseq's encoder layers have a fused path around their attention module, which
    :mod:`fairseq_compat.fairseq_fixes` has closed.
    """
    with ExitStack() as hooks:
        for attention in attentions(model):
            hooks.enter_context(hook(attention))
        yield


@contextmanager
def watched(model: nn.Module, see: Callable[[Attention, Tensor], None]) -> Iterator[None]:
    """While it lasts, each attention that runs calls ``see`` with its logits ``(B, H, T, S)``."""

    def hook(attention: Attention) -> Any:
        def before(module: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
            see(attention, logits(module, *inputs_of(module, args, kwargs)))

        return attention.module.register_forward_pre_hook(before, with_kwargs=True)

    with hooked(model, hook):
        yield
