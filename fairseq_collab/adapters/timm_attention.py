"""Attention with the interface of timm's ``Attention`` (also DeiT's original code).

There is no class to import: whatever has a fused projection ``qkv``, an output projection ``proj``
with dropout, ``num_heads`` and dropout of weights is taken, and called as ``attention(x)``,
``attention(x, attn_mask=..., is_causal=...)``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.adapters.core import attend, keys_and_values
from fairseq_collab.attention import CollaborativeAttention

_PARTS = ("qkv", "proj", "num_heads", "attn_drop", "proj_drop")


class TimmHeads(nn.Module):
    """In place of timm's ``Attention``."""

    def __init__(self, original: Any, core: CollaborativeAttention):
        super().__init__()
        self.core = core
        self.proj, self.proj_drop = original.proj, original.proj_drop
        self.train(original.training)

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """``x (B, T, d)``; the mask is added to the scores, or true where a query may look."""
        if is_causal:
            if attn_mask is not None:
                raise ValueError("give attn_mask or is_causal, not both")
            length = x.size(1)
            attn_mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        heads, _ = attend(self.core, x, keys_and_values(self.core, x), attn_mask)
        return self.proj_drop(self.proj(heads))


def parts(name: str, module: Any) -> tuple[type, dict[str, Any]] | None:
    """The adapter, and what :func:`.collaborative_core` takes; None if it is not like timm's.

    Raises:
        UserError: the attention has parts beyond queries, keys and values.
    """
    if not all(hasattr(module, part) for part in _PARTS):
        return None
    tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    for part, own in (*tensors, *module.named_children()):
        # Others change queries, keys, weights or outputs: norms, gates, heads that talk.
        if part not in _PARTS and not isinstance(own, nn.Identity):
            raise UserError(f"it has a {part}, which collaborative heads have not", name)
    weights = module.qkv.weight.chunk(3)  # (d, d) each
    biases = [None] * 3 if module.qkv.bias is None else module.qkv.bias.chunk(3)
    return TimmHeads, {
        "projections": [*zip(weights, biases, strict=True)],
        "num_heads": module.num_heads,
        "dropout": module.attn_drop.p,
        "scaling": (len(weights[0]) // module.num_heads) ** -0.5,
    }
