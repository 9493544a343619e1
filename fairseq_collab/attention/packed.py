"""Attention of a decoding step over a rounded cache, which is never unpacked as a whole.

Unpacked, a cache is as large as one without rounding, and has to be written and read again.  Here a
block of slots is unpacked, attended to and forgotten; the softmax goes on from block to block
(Milakov, Gimelshein 2018, arXiv 1805.02867):

    m' = max(m, max_t s_t),    c = e^(m - m'),    l' = c l + sum_t e^(s_t - m'),
    o' = c o + sum_t e^(s_t - m') v_t,            head = o / l

A kernel can do all of it (:func:`use_kernel`); else operators of torch do.

Shapes:
    B  sentences    H  heads    T  queries: beams    S  slots    e, h_v  sizes of keys and values
    s_t  scores of slot t    m  the greatest so far    l, o  sums so far
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

#: Outputs of all heads, ``(B, H, T, h_v)``, and weights ``(B, H, T, S)``, or None.
Heads = tuple[Tensor, Tensor | None]
#: Of queries, context, and whether weights are wanted; None where it does not apply.
Kernel = Callable[[Tensor, PackedContext, bool], Heads | None]
#: The most numbers of a block: 4 MiB.
BLOCK = 2**20

_kernels: list[Kernel] = []


def use_kernel(kernel: Kernel) -> None:
    """Compute with ``kernel`` from now on, where it applies."""
    _kernels[:] = [kernel]


def can_stay_packed(q: Tensor, context: PackedContext, dropout: float) -> bool:
    """Whether to use :func:`packed_heads`: in a step of decoding on a CPU, without gradients."""
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
    return _in_blocks(q, context, attn_mask, need_weights)


def _in_blocks(
    q: Tensor, context: PackedContext, attn_mask: Tensor | None, need_weights: bool
) -> Heads:
    """The same with operators of torch."""
    keys, values, mask = context
    slots, width = keys.filled.size(2), max(x.heads * x.size for x in (keys, values))
    step = max(1, BLOCK // max(1, q.size(0) * width))
    greatest: Tensor | float = float("-inf")  # m, l, o
    total: Tensor | float = 0.0
    heads: Tensor | float = 0.0
    scores = []
    for start in range(0, slots, step):
        block = slice(start, start + step)
        k = keys.numbers(block)
        v = k if values is keys else values.numbers(block)
        masks = (None if m is None else m[..., block] for m in (attn_mask, mask))
        score = mask_scores(head_scores(q, k), *masks)
        score = score.to(torch.promote_types(score.dtype, torch.float32))
        top = score.amax(-1, keepdim=True)
        top = torch.maximum(top, torch.as_tensor(greatest, dtype=top.dtype))
        shift = top.masked_fill(top == float("-inf"), 0)  # all so far are hidden
        shrink = (greatest - shift).exp()
        weights = (score - shift).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        heads = heads * shrink + weighted_values(weights.to(v.dtype), v)
        greatest = top
        scores += [score] if need_weights else []
    heads = (heads / total).to(q.dtype)
    return heads, torch.cat(scores, -1).softmax(-1).to(v.dtype) if need_weights else None
