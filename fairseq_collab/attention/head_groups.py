"""Concatenated heads in groups, as a module: they compute the same, and can be watched.

The mathematics of groups is in :mod:`fairseq_collab.attention.groups`.

Shapes: ``B`` sentences, ``T`` queries, ``S`` keys, ``H`` heads, ``C`` groups, ``h_v`` size of a
head's value.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fairseq_collab.attention.checks import check_choice, check_positive
from fairseq_collab.attention.concatenated import ConcatenatedAttention, ConcatenatedSignature
from fairseq_collab.attention.projections import split_heads
from fairseq_collab.attention.signature import chosen, labelled

#: What of a head is compared: its values, its attention weights, or its output before ``out_proj``.
FEATURES = ("value", "attention", "output")


@dataclass(frozen=True)
class HeadGroupSignature(ConcatenatedSignature):
    kind = 3

    groups: int = labelled("groups")
    feature: str = chosen("group feature", FEATURES)
    centred: int = labelled("centred group features")


class HeadGroupAttention(ConcatenatedAttention):
    """Concatenated heads that know their groups, and show their features when watched.

    They compute what concatenated heads compute.  The groups are part of the state, as
    ``membership (H, C)``: zero before the first update, and a mean of unit vectors in an average of
    checkpoints.

    Args:
        groups: ``C``, at most ``H``.
        feature: one of :data:`FEATURES`.
        centred: compare features without their mean over positions.
        site: where the attention stands in its model; only its users need it.

    Raises:
        ValueError: see :class:`ConcatenatedAttention`; or there are more groups than heads.
    """

    membership: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        groups: int,
        feature: str = "value",
        centred: bool = False,
        site: str = "",
        **options: Any,
    ):
        check_positive(head_groups=groups)
        if groups > num_heads:
            raise ValueError(f"{groups} head groups are more than the {num_heads} heads")
        self.groups, self.centred, self.site = groups, centred, site
        self.compare(feature)
        super().__init__(embed_dim, num_heads, **options)
        self.register_buffer("membership", torch.zeros(num_heads, groups))
        #: ``(B, H, N, e)`` of the last forward that was watched.
        self.features: Tensor | None = None

    def describe(self) -> HeadGroupSignature:
        heads = asdict(super().describe())
        return HeadGroupSignature(
            **heads, groups=self.groups, feature=self.feature, centred=int(self.centred)
        )

    def compare(self, feature: str) -> None:
        """Compare the heads by one of :data:`FEATURES` from now on."""
        check_choice("group feature", feature, FEATURES)
        self.feature = feature
        self.may_fuse = feature != "attention"

    def watch(self) -> RemovableHandle:
        """Keep ``features`` of every forward, until the handle is removed."""
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

    def positions_are_keys(self) -> bool:
        """Whether the positions ``N`` of the features are the keys', and not the queries'."""
        return self.feature == "value"


def head_group_attentions(model: nn.Module) -> list[HeadGroupAttention]:
    """All attentions of a model whose heads have groups, in its order."""
    return [module for module in model.modules() if isinstance(module, HeadGroupAttention)]
