"""Models with groups of heads (Ni et al. 2023, arXiv 2305.14380): ``..._grouped_heads``.

They have the options and the function of ``..._headsize_n``.
``--criterion label_smoothed_cross_entropy_with_head_groups``, or ``adaptive_loss_with_head_groups``
for language models with adaptive softmax, trains the groups.  ``fairseq-collab vote`` and ``prune``
keep one head per group.  Weights of ``..._headsize_n`` load, too; their groups are found anew.
"""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from fairseq_collab.attention import ConcatenatedAttention
from fairseq_collab.attention.head_groups import HeadGroupAttention
from fairseq_collab.models.concatenated import (
    ConcatenatedOptions,
    add_to_heads,
    head_options,
)
from fairseq_collab.models.config import option
from fairseq_collab.models.layers import Site
from fairseq_collab.models.site_options import per_site


@dataclass
class HeadGroupOptions(ConcatenatedOptions):
    """Options of ``transformer_grouped_heads`` (Ni et al. 2023, arXiv 2305.14380)."""

    head_groups: Optional[str] = option(
        None,
        "groups of heads in each attention: a number, or three joined by commas, for encoder "
        "self-attention, decoder self-attention, cross-attention (default: a quarter of the heads, "
        "as the paper's 2 of 8)",
    )
    group_feature: str = option(
        "value",
        "feature by which heads are grouped: value, attention (the weights) or output (of each "
        "head, before out_proj)",
    )


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> ConcatenatedAttention:
    """The attention of one type and layer; without heads that of ``..._headsize_n``."""
    heads, sizes = head_options(cfg, site, layer, num_heads)
    if not heads:
        return ConcatenatedAttention(embed_dim, heads, **sizes, **options)
    groups = max(1, heads // 4)
    if cfg.head_groups is not None:
        groups = per_site("--head-groups", cfg.head_groups)[site]
    own = {"groups": groups, "feature": cfg.group_feature, "site": site}
    return HeadGroupAttention(embed_dim, heads, **own, **sizes, **options)


def add_groups(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Complete weights of ``..._headsize_n``, in place, with the groups of ``model``."""
    if not any(name.endswith(".membership") for name in weights):
        add_to_heads(weights, model, HeadGroupAttention, "membership")
