"""``transformer_grouped_heads``: heads that form groups while they train (arXiv 2305.14380).

Presets as for ``transformer_headsize_n``, with all of its options.  The model computes what that
one computes; ``--criterion label_smoothed_cross_entropy_with_head_groups`` makes the groups, and
``fairseq-collab vote`` and ``prune`` leave one head of each.
"""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Optional

from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention.grouped import GroupedAttention
from fairseq_collab.models.base import HeadTransformer, register_presets
from fairseq_collab.models.config import HeadSizeOptions
from fairseq_collab.models.layers import AttentionBuilder, Site
from fairseq_collab.models.site_options import by_layer, per_site
from fairseq_collab.models.transformer_headsize_n import HeadCounts, head_options, heads_of


@dataclass
class GroupedHeadsOptions(HeadSizeOptions):
    """Options of ``transformer_grouped_heads`` (Ni et al. 2023, arXiv 2305.14380)."""

    head_groups: Optional[str] = field(
        default=None,
        metadata={
            "help": "groups of heads in each attention: a number, or three joined by commas, for "
            "encoder, decoder and decoder-encoder attention (default: a quarter of the heads, as "
            "the paper's 2 of 8)"
        },
    )
    group_feature: str = field(
        default="value",
        metadata={
            "help": "what of the heads is compared: value, attention (the weights) or output (of "
            "each head, before they are combined)"
        },
    )


class GroupedHeadsTransformer(HeadTransformer):
    """A transformer whose heads are concatenated, and know their groups."""

    @classmethod
    def attention_builder(cls, cfg: TransformerConfig) -> AttentionBuilder:
        groups = None if cfg.head_groups is None else per_site("--head-groups", cfg.head_groups)
        return partial(
            build_attention, cfg=cfg, counts=by_layer(cfg, "heads", least=1), groups=groups
        )


def build_attention(
    site: Site,
    layer: int,
    embed_dim: int,
    num_heads: int,
    *,
    cfg: TransformerConfig,
    counts: HeadCounts,
    groups: dict[Site, int] | None,
    **options: Any,
) -> GroupedAttention:
    """The heads of one site in one layer; a group for every four of them unless told otherwise."""
    heads = heads_of(counts, site, layer, num_heads)
    return GroupedAttention(
        embed_dim,
        heads,
        groups=max(1, heads // 4) if groups is None else groups[site],
        feature=cfg.group_feature,
        site=site,
        **head_options(cfg, heads),
        **options,
    )


register_presets("transformer_grouped_heads", GroupedHeadsTransformer, GroupedHeadsOptions)
