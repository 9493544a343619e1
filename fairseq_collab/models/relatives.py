"""Models with fewer numbers per token in the cache, to compare shared keys with.

``..._grouped_query`` (Shazeer 2019, arXiv 1911.02150; Ainslie et al. 2023, 2305.13245): groups of
heads share keys and values; with one group per head it is fairseq's model of the same sizes.
``..._latent`` (DeepSeek-V2, 2405.04434): keys and values of all heads come from one latent.
``..._mfa`` (Hu et al. 2024, 2412.19255): one key and one value, a full matrix per query.
"""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.mfa import MFAAttention
from fairseq_collab.models.concatenated import HeadSizeOptions, head_sizes
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


def grouped_query(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> GroupedQueryAttention:
    """The heads of one site in one layer."""
    shared = at_layer(cfg, "key_value_heads", site, layer, 1, cfg.key_value_heads)
    return GroupedQueryAttention(embed_dim, num_heads, shared, **options)


_latent_dim = partial(in_site, "latent dimension", default="--latent-dim")


@dataclass
class LatentOptions(HeadSizeOptions):
    """Options of ``transformer_latent`` (DeepSeek-V2, arXiv 2405.04434)."""

    latent_dim: Optional[int] = option(
        None,
        "numbers that are kept of a token, from which all heads make their keys and values "
        "(default: half the model dimension, a quarter of what ordinary heads keep)",
    )
    latent_dim_in_encoder: Optional[str] = _latent_dim("encoder")
    latent_dim_in_decoder: Optional[str] = _latent_dim("decoder")
    latent_dim_in_cross: Optional[str] = _latent_dim("cross")


def latent(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> HeadAttention:
    """The heads of one site in one layer; without heads, those of ``..._headsize_n``."""
    heads, sizes = head_sizes(cfg, site, layer, num_heads)
    if not heads:
        return ConcatenatedAttention(embed_dim, heads, **sizes, **options)
    usual = embed_dim // 2 if cfg.latent_dim is None else cfg.latent_dim
    latent_dim = at_layer(cfg, "latent_dim", site, layer, 1, usual)
    return LatentAttention(embed_dim, heads, latent_dim, **sizes, **options)


_shared_width = partial(in_site, "shared width", default="--key-dim")
_heads = partial(in_site, "heads", default="--encoder-attention-heads, --decoder-attention-heads")


@dataclass
class MFAOptions(FairseqDataclass):
    """Options of ``transformer_mfa`` (Hu et al. 2024, arXiv 2412.19255)."""

    key_dim: Optional[int] = option(
        None,
        "width of the key and of the value that all heads of an attention share (default: a "
        "quarter of the model dimension)",
    )
    key_dim_in_encoder: Optional[str] = _shared_width("encoder")
    key_dim_in_decoder: Optional[str] = _shared_width("decoder")
    key_dim_in_cross: Optional[str] = _shared_width("cross")
    heads_in_encoder: Optional[str] = _heads("encoder")
    heads_in_decoder: Optional[str] = _heads("decoder")
    heads_in_cross: Optional[str] = _heads("cross")


def mfa(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> MFAAttention:
    """The heads of one attention type in one layer."""
    heads = at_layer(cfg, "heads", site, layer, 1, num_heads)
    usual = embed_dim // 4 if cfg.key_dim is None else cfg.key_dim
    width = at_layer(cfg, "key_dim", site, layer, 1, usual)
    return MFAAttention(embed_dim, heads, width, **options)
