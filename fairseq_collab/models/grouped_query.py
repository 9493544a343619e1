"""Models whose heads share keys and values (arXiv 1911.02150, 2305.13245): ``..._grouped_query``.

With as many key/value heads as heads each is fairseq's model of the same sizes.
"""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.models.config import option
from fairseq_collab.models.layers import Site
from fairseq_collab.models.site_options import at_layer, in_site

_key_value_heads = partial(in_site, "key/value heads", default="--key-value-heads")


@dataclass
class GroupedQueryOptions(FairseqDataclass):
    """Options of ``transformer_grouped_query`` (Ainslie et al. 2023, arXiv 2305.13245)."""

    key_value_heads: int = option(
        1,
        "heads of keys and values, each shared by as many heads of queries: 1 is multi-query "
        "attention, as many as there are heads fairseq's own",
    )
    key_value_heads_in_encoder: Optional[str] = _key_value_heads("encoder")
    key_value_heads_in_decoder: Optional[str] = _key_value_heads("decoder")
    key_value_heads_in_cross: Optional[str] = _key_value_heads("cross")


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> GroupedQueryAttention:
    """The heads of one site in one layer."""
    shared = at_layer(cfg, "key_value_heads", site, layer, 1, cfg.key_value_heads)
    return GroupedQueryAttention(embed_dim, num_heads, shared, **options)
