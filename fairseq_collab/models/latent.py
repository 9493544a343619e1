"""Models whose keys and values come from one latent a token (arXiv 2405.04434): ``..._latent``."""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.models.concatenated import HeadSizeOptions, head_sizes
from fairseq_collab.models.config import option
from fairseq_collab.models.layers import Site
from fairseq_collab.models.site_options import at_layer, in_site

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


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> HeadAttention:
    """The heads of one site in one layer; without heads, those of ``..._headsize_n``."""
    heads, sizes = head_sizes(cfg, site, layer, num_heads)
    if not heads:
        return ConcatenatedAttention(embed_dim, heads, **sizes, **options)
    usual = embed_dim // 2 if cfg.latent_dim is None else cfg.latent_dim
    latent_dim = at_layer(cfg, "latent_dim", site, layer, 1, usual)
    return LatentAttention(embed_dim, heads, latent_dim, **sizes, **options)
