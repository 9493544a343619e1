"""Attention of a decoding step over a rounded cache, which is never unpacked as a whole.

Unpacked, a cache is as large as one without rounding, and has to be written and read again.  Here a
block of slots is unpacked, multiplied and forgotten; a latent, which is needed twice, is kept.  A
kernel can do all of it (:func:`use_kernel`); else operators of torch do.

Shapes:
    B  sentences    H  heads    T  queries: beams    S  slots    e, h_v  sizes of keys and values
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fairseq_collab.attention.cache import PackedContext
from fairseq_collab.attention.scores import (
    FUSE_QUERIES,
    head_scores,
    mask_scores,
    weighted_values,
)

#: Outputs of all heads, ``(B, H, T, h_v)``, and weights ``(B, H, T, S)`` if they were computed.
Heads = tuple[Tensor, Tensor | None]
#: A function of queries, a context, and whether weights are wanted; None if it cannot compute them.
Kernel = Callable[[Tensor, PackedContext, bool], Heads | None]
#: The most numbers of a block: 2 MiB in float32.
BLOCK = 2**19

_kernels: list[Kernel] = []


def use_kernel(kernel: Kernel) -> None:
    """Compute with ``kernel`` from now on, wherever it can."""
    _kernels[:] = [kernel]


def can_stay_packed(q: Tensor, context: PackedContext, dropout: float) -> bool:
    """Return whether to use :func:`packed_heads`.

    It is for a step of decoding on a CPU, without gradients and dropout.
    """
    return (
        q.device.type == "cpu"
        and not (q.requires_grad or dropout)
        and q.size(2) < FUSE_QUERIES
        and context.keys.filled.size(2) > 0
    )


def packed_heads(
    q: Tensor, context: PackedContext, attn_mask: Tensor | None, need_weights: bool
) -> Heads:
    """Attend with the queries ``q (B, H, T, e)``; masks as in ``mask_scores``."""
    for kernel in _kernels if attn_mask is None else ():
        found = kernel(q, context, need_weights)
        if found is not None:
            return found
    return _in_blocks(q, context, attn_mask)


def _in_blocks(q: Tensor, context: PackedContext, attn_mask: Tensor | None) -> Heads:
    """Compute what :func:`packed_heads` returns with operators of torch."""
    keys, values, mask = context
    slots, width = keys.filled.size(2), max(x.heads * x.size for x in (keys, values))
    step = max(1, BLOCK // max(1, q.size(0) * width))
    blocks = [slice(start, start + step) for start in range(0, slots, step)]
    latents, scores = [], []
    for block in blocks:
        k = keys.numbers(block)
        latents += [k] if values is keys else []  # unpacked once
        scores.append(head_scores(q, k))
    # Under autocast the softmax is in single precision.
    weights = mask_scores(torch.cat(scores, -1), attn_mask, mask).softmax(-1).to(values.dtype)
    heads = q.new_zeros(())
    for number, block in enumerate(blocks):
        v = latents[number] if values is keys else values.numbers(block)
        heads = heads + weighted_values(weights[..., block], v)
    return heads, weights
