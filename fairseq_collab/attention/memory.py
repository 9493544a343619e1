"""Keys and values that are linear maps of one memory, which is all that is kept of a token.

    k_g = m Wk_g^T,      v_g = m Wv_g^T + bv_g,      m  (S, r)
    q_i k_g^T = (q_i Wk_g) m^T,      P_i v_g = (P_i m) Wv_g^T + bv_g      (rows of P_i sum to one)

So queries and outputs can take the maps over ("absorb" them), and keys and values never exist:
every head scores and weighs the memory itself.

Shapes:
    B  sentences    T  queries    S  keys    H  heads
    G  heads of keys, or of values: each serves H/G heads, one after the other
    e  size of a scored query/key vector    h_v  size of a head's value    r  size of the memory
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Maps(NamedTuple):
    """What makes keys and values of a memory.

    Shapes: ``keys (G, e, r)``, ``values (G, h_v, r)``, ``value_bias (G, h_v)``.
    """

    keys: Tensor
    values: Tensor
    value_bias: Tensor | None = None

    def of_memory(self, q: Tensor) -> Tensor:
        """Queries of keys as queries of the memory: ``(B, H, T, e) -> (B, H, T, r)``."""
        by_group = q.unflatten(1, (len(self.keys), -1))
        return torch.einsum("bgite,ger->bgitr", by_group, self.keys).flatten(1, 2)

    def of_values(self, heads: Tensor, weights: Tensor | None = None) -> Tensor:
        """Weighted memory as weighted values: ``(B, H, T, r) -> (B, H, T, h_v)``.

        Args:
            weights: ``(B, H, T, S)``, if they do not sum to one (because of dropout).
        """
        groups = (len(self.values), -1)
        out = torch.einsum("bgitr,gvr->bgitv", heads.unflatten(1, groups), self.values)
        if self.value_bias is not None:
            bias = self.value_bias[:, None, None]  # (G, 1, 1, h_v)
            if weights is not None:
                bias = bias * weights.sum(-1, keepdim=True).unflatten(1, groups)
            out = out + bias
        return out.flatten(1, 2)
