"""Scores of queries and keys with their masks, weighted sums of values, torch's fused kernel.

    scores = q k^T + mask,      heads = softmax(scores) v

Shapes:
    B  sentences    T  queries    S  keys    H  heads
    G  heads of keys, or of values: each serves H/G heads, one after the other
    e  size of a scored query/key vector    h_v  size of a head's value
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

#: The least numbers of queries and (on a CPU) of keys for torch's fused kernel.
FUSE_QUERIES, FUSE_KEYS = 32, 256


def head_scores(q: Tensor, k: Tensor) -> Tensor:
    """Scores of all heads: ``(B, H, T, e), (B, G, S, e) -> (B, H, T, S)``."""
    return _product(q, k.transpose(2, 3))


def weighted_values(weights: Tensor, v: Tensor) -> Tensor:
    """Outputs of all heads: ``(B, H, T, S), (B, G, S, h_v) -> (B, H, T, h_v)``."""
    return _product(weights, v)


def _product(rows: Tensor, each: Tensor) -> Tensor:
    """Products of all heads: ``(B, H, T, m), (B, G, m, n) -> (B, H, T, n)``."""
    heads, groups = rows.size(1), each.size(1)
    if groups == heads:
        return rows @ each
    # H/G heads share a factor: their rows are stacked into one product.
    together = rows.unflatten(1, (groups, -1)).flatten(2, 3)  # (B, G, H/G * T, m)
    product = together @ each  # (B, G, H/G * T, n)
    return product.unflatten(2, (heads // groups, -1)).flatten(1, 2)


def for_each_head(shared: Tensor, num_heads: int) -> Tensor:
    """Keys or values, repeated for the heads that share them: ``(B, G, S, n) -> (B, H, S, n)``."""
    batch, groups, *rest = shared.shape
    each = shared.unsqueeze(2).expand(batch, groups, num_heads // groups, *rest)
    return each.flatten(1, 2)


def fused_heads(q: Tensor, k: Tensor, v: Tensor, *masks: Tensor | None) -> Tensor:
    """Outputs of all heads by torch's fused kernel: ``(B, H, T, h_v)``; masks as below."""
    k, v = (for_each_head(shared, q.size(1)) for shared in (k, v))
    return F.scaled_dot_product_attention(q, k, v, _merged(q, masks), scale=1.0)


def mask_scores(scores: Tensor, *masks: Tensor | None) -> Tensor:
    """Apply masks to scores: bool masks are true where forbidden, others are added.

    Shapes: ``scores (B, H, T, S)``, and whatever broadcasts to it.
    """
    given = [mask for mask in masks if mask is not None]
    if len(given) > 1:  # one for all heads: a pass over their scores takes longer
        return scores + _merged(scores, given)
    for mask in given:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(mask, float("-inf"))
        else:
            scores = scores + mask
    return scores


def _merged(like: Tensor, masks: Sequence[Tensor | None]) -> Any:
    """One mask in place of several, to be added: 0 where allowed, else -inf; None in place of none.

    ``like`` is of the scores' kind.
    """
    sums = [mask_scores(like.new_zeros(()), mask) for mask in masks if mask is not None]
    return sum(sums[1:], sums[0]) if sums else None


def over_keys(padding: Tensor | None, attn_mask: Tensor | None = None) -> Tensor | None:
    """A padding mask ``(B, S)`` as one of scores: ``(B, 1, 1, S)``.

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
