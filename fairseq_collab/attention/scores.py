"""Scores of queries and keys with their masks, weighted sums of values, torch's fused kernels.

    scores = q k^T + mask,      heads = softmax(scores) v

Shapes:
    B  sentences    T  queries    S  keys    H  heads
    G  heads of keys, or of values: each serves H/G heads, one after the other
    e  size of a scored query/key vector    h_v  size of a head's value
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

#: The smallest numbers of queries and of keys for which torch's fused kernels pay.
FUSE_QUERIES, FUSE_KEYS = 32, 256


def head_scores(q: Tensor, k: Tensor) -> Tensor:
    """Scores of all heads: ``(B, H, T, e), (B, G, S, e) -> (B, H, T, S)``."""
    return _grouped_matmul(q, k.transpose(2, 3))


def weighted_values(weights: Tensor, v: Tensor) -> Tensor:
    """Outputs of all heads: ``(B, H, T, S), (B, G, S, h_v) -> (B, H, T, h_v)``."""
    return _grouped_matmul(weights, v)


def _grouped_matmul(x: Tensor, shared: Tensor) -> Tensor:
    """Products of all heads: ``(B, H, T, m), (B, G, m, n) -> (B, H, T, n)``."""
    heads, groups = x.size(1), shared.size(1)
    if groups == heads:
        return x @ shared
    # H/G heads share a factor: their rows are stacked into one product.
    stacked = x.unflatten(1, (groups, -1)).flatten(2, 3)  # (B, G, H/G * T, m)
    product = stacked @ shared  # (B, G, H/G * T, n)
    return product.unflatten(2, (heads // groups, -1)).flatten(1, 2)


def for_each_head(shared: Tensor, num_heads: int) -> Tensor:
    """Repeat keys or values for the heads that share them: ``(B, G, S, n) -> (B, H, S, n)``.

    The result is a view if all heads share one (``G = 1``) or none does (``G = H``), else a copy.
    """
    batch, groups, *rest = shared.shape
    repeated = shared.unsqueeze(2).expand(batch, groups, num_heads // groups, *rest)
    return repeated.flatten(1, 2)


def can_fuse(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> bool:
    """Return whether :func:`fused_heads` is worthwhile.

    On a CPU (``d = 512``, 8 heads) it is faster from 256 keys on, if padding at most doubles the
    values; in training with padded values, from 512 on.  torch's kernel for CPUs has no dropout.
    A GPU has the same thresholds, until it is timed there (``recipes/gpu_check.sh``).
    """
    widening = q.size(3) / v.size(3)
    if q.size(2) < FUSE_QUERIES or widening > 2:
        return False
    least = 2 * FUSE_KEYS if widening > 1 and q.requires_grad else FUSE_KEYS
    return k.size(2) >= least and (q.is_cuda or not dropout)


def fused_heads(
    q: Tensor, k: Tensor, v: Tensor, *masks: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """Return the outputs of all heads ``(B, H, T, h_v)`` by torch's fused kernel.

    The kernel needs keys and values of one width.  For other widths, torch silently computes the
    whole matrix of scores, so the narrower ones are padded with zeros here, which changes no
    result.  Heads are repeated here, because with ``enable_gqa`` torch has no fused kernel for
    masks on a GPU.

    Args:
        masks: as in :func:`mask_scores`.
    """
    width, value_width = max(q.size(3), v.size(3)), v.size(3)
    q, k, v = (F.pad(x, (0, width - x.size(3))) if x.size(3) < width else x for x in (q, k, v))
    k, v = (for_each_head(shared, q.size(1)) for shared in (k, v))
    mask = _merged(q, masks)
    if mask is not None:
        mask = mask.to(q.dtype)  # kernels may misread a mask of another type (pytorch 191612)
    with _without_cudnn:
        heads = F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=1.0)
    return heads[..., :value_width]


class _WithoutCudnn:
    """Keeps torch from cuDNN's attention, its first choice on Hopper GPUs from torch 2.11 on.

    cuDNN makes a new plan for every shape, and gives NaN gradients for some masks (pytorch 196678).
    The switch holds for the whole process: the first thread that enters turns cuDNN off, and the
    last one that leaves restores it.
    """

    def __init__(self) -> None:
        self.lock, self.threads, self.enabled = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self.lock:
            if self.threads == 0:
                self.enabled = torch.backends.cuda.cudnn_sdp_enabled()
                torch.backends.cuda.enable_cudnn_sdp(False)
            self.threads += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.threads -= 1
            if self.threads == 0:
                torch.backends.cuda.enable_cudnn_sdp(self.enabled)


_without_cudnn = _WithoutCudnn()


def mask_scores(scores: Tensor, *masks: Tensor | None) -> Tensor:
    """Apply masks to scores: bool masks are true where attention is forbidden, others are added.

    Shapes: ``scores (B, H, T, S)``; masks broadcast to it.
    """
    present = [mask for mask in masks if mask is not None]
    if len(present) > 1:  # merged without the heads: a pass over all scores takes longer
        return scores + _merged(scores, present)
    for mask in present:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(mask, float("-inf"))
        else:
            scores = scores + mask
    return scores


def _merged(like: Tensor, masks: Sequence[Tensor | None]) -> Any:
    """Merge masks into one additive mask (0 allowed, -inf forbidden); None if there is none.

    Args:
        like: tensor whose dtype and device the mask gets.
    """
    sums = [mask_scores(like.new_zeros(()), mask) for mask in masks if mask is not None]
    return sum(sums[1:], sums[0]) if sums else None


def over_keys(padding: Tensor | None, attn_mask: Tensor | None = None) -> Tensor | None:
    """Turn a padding mask ``(B, S)`` into a mask of scores: ``(B, 1, 1, S)``.

    Args:
        attn_mask: ``(T, S)``, further forbidden keys; the result is then ``(B, 1, T, S)``.  A query
            without any key, as in padding on the left, sees the padding.  Its output is never read,
            but NaN would spread to all positions of the next layer.
    """
    if padding is None:
        return None
    mask = padding[:, None, None, :].to(torch.bool)
    if attn_mask is None:
        return mask
    forbidden = attn_mask if attn_mask.dtype == torch.bool else attn_mask == float("-inf")
    return mask & ~(mask | forbidden).all(-1, keepdim=True)
