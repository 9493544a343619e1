"""Attention of a decoding step to keys in several tensors, which are never joined.

An engine that keeps its caches outside this module gives the keys and values of earlier steps as
one part; those of the step itself are another part.  Joining the two would copy the whole past in
every step.

Shapes:
    B  sentences    H  heads    T  queries: beams    S_i  slots of part i, S of all of them
    G  heads of keys or of values    e, h_v  sizes of keys and values
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_collab.attention.scores import head_scores, mask_scores, weighted_values


class ContextInParts(NamedTuple):
    """Keys ``(B, G, S_i, e)`` and values ``(B, G, S_i, h_v)`` by part; one mask of all scores."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    #: ``(B, 1, T, S)``: 0 where a query may look, else -inf.
    mask: Tensor


def heads_in_parts(q: Tensor, context: ContextInParts) -> Tensor:
    """Return the outputs of all heads: ``(B, H, T, e) -> (B, H, T, h_v)``."""
    scores = torch.cat([head_scores(q, keys) for keys in context.keys], dim=-1)
    weights = mask_scores(scores, context.mask).softmax(dim=-1)
    parts = weights.split([keys.size(2) for keys in context.keys], dim=-1)
    first, *others = map(weighted_values, parts, context.values)
    return sum(others, first)
