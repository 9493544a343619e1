"""Separate keys, with heads in groups, of which one is retained (Ni et al. 2023, arXiv 2305.14380).

The function is that of :class:`SeparateAttention`.  In training, a criterion reads a *feature*
of each head, finds groups of similar heads, and stores them here
(:mod:`fairseq_collab.criterions.clusters`).

Shapes:
    B  sentences    N  positions    H  heads    C  groups    e  size of a feature at a position
    features (B, H, N, e)    membership (H, C): row ``i`` is the unit vector of head ``i``'s group
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fairseq_collab.attention.building import check_choice, check_sizes, split_heads
from fairseq_collab.attention.separate import SeparateAttention, SeparateSignature
from fairseq_collab.attention.signature import choice_field, labelled_field

#: The feature of a head: its values, attention weights, or outputs before ``out_proj``.
FEATURES = ("value", "attention", "output")


@dataclass(frozen=True)
class HeadGroupSignature(SeparateSignature):
    kind = 3

    groups: int = labelled_field("groups")
    feature: str = choice_field("group feature", FEATURES)


class HeadGroupAttention(SeparateAttention):
    """Separate keys with groups of heads, see :class:`SeparateAttention`.

    It keeps the heads' features while it is watched.  The buffer ``membership (H, C)`` holds the
    groups: zeros before the first update, a mean of unit vectors in an average of checkpoints.

    Args:
        groups: ``C``, at most ``H``.
        feature: one of :data:`FEATURES`.
        attention_type: encoder, decoder or cross, for criterions.

    Raises:
        ValueError: as for :class:`SeparateAttention`; or there are more groups than heads.
    """

    signature_type = HeadGroupSignature
    membership: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        groups: int,
        feature: str = "value",
        attention_type: str = "",
        **options: Any,
    ):
        check_sizes(head_groups=groups)
        if groups > num_heads:
            raise ValueError(f"{groups} head groups are more than the {num_heads} heads")
        check_choice("group feature", feature, FEATURES)
        self.groups, self.feature = groups, feature
        self.attention_type = attention_type
        self.may_fuse = feature != "attention"
        super().__init__(embed_dim, num_heads, **options)
        self.register_buffer("membership", torch.zeros(num_heads, groups))
        #: ``(B, H, N, e)`` of the last watched forward pass.
        self.features: Tensor | None = None

    def watch(self) -> RemovableHandle:
        """Keep ``features`` of every forward pass until the handle is removed."""
        if self.feature == "value":  # (S, B, H * h_v)
            return self.v_proj.register_forward_hook(
                lambda module, inputs, output: self._keep(split_heads(output, self.num_heads))
            )
        if self.feature == "attention":  # (B, H, T, S), before dropout
            return self.dropout_module.register_forward_pre_hook(
                lambda module, inputs: self._keep(inputs[0])
            )
        return self.out_proj.register_forward_pre_hook(  # (T, B, H * h_v)
            lambda module, inputs: self._keep(split_heads(inputs[0], self.num_heads))
        )

    def _keep(self, features: Tensor) -> None:
        self.features = features


def head_group_attentions(model: nn.Module) -> list[HeadGroupAttention]:
    """List the attentions of a model whose heads have groups, in its order."""
    return [module for module in model.modules() if isinstance(module, HeadGroupAttention)]
