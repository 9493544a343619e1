"""Models whose heads form groups while they train (arXiv 2305.14380): ``..._grouped_heads``.

They have all options of ``..._headsize_n`` and compute what these compute;
``--criterion label_smoothed_cross_entropy_with_head_groups``, or ``adaptive_loss_with_head_groups``
for language models with adaptive softmax, makes the groups, and ``fairseq-collab vote`` and
``prune`` leave one head of each.  Weights of concatenated heads load, too, and their groups are
found anew: so the constraint goes on in fine-tuning, where a group is one head that is left.
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
        "groups of heads in each attention: a number, or three joined by commas, for encoder, "
        "decoder and decoder-encoder attention (default: a quarter of the heads, as the paper's "
        "2 of 8)",
    )
    group_feature: str = option(
        "value",
        "what of the heads is compared: value, attention (the weights) or output (of each head, "
        "before they are combined)",
    )
    group_centred: bool = option(
        False,
        "compare features without their mean over the positions of a batch: as they are, what is "
        "the same at every position meets the constraint, too",
    )


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> ConcatenatedAttention:
    """The heads of one site in one layer; a group for every four of them by default.

    Without heads there are no groups either, and the attention is that of ``..._headsize_n``.
    """
    heads, sizes = head_options(cfg, site, layer, num_heads)
    if not heads:
        return ConcatenatedAttention(embed_dim, heads, **sizes, **options)
    groups = max(1, heads // 4)
    if cfg.head_groups is not None:
        groups = per_site("--head-groups", cfg.head_groups)[site]
    compared = {"feature": cfg.group_feature, "centred": cfg.group_centred}
    return HeadGroupAttention(
        embed_dim, heads, groups=groups, site=site, **compared, **sizes, **options
    )


def add_groups(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Complete weights of concatenated heads, in place, with the groups that ``model`` has now."""
    if not any(name.endswith(".membership") for name in weights):
        add_to_heads(weights, model, HeadGroupAttention, "membership")
