"""Models whose keys and values come from one latent a token (arXiv 2405.04434): ``..._latent``."""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.models.concatenated import HeadSizeOptions, head_sizes
from fairseq_collab.models.layers import Site
from fairseq_collab.models.site_options import at_layer


def _latent_dim_in(site: str) -> Any:
    """The option for the latents of one attention site."""
    return field(
        default=None,
        metadata={
            "help": f"latent dimension in {site}: a number, or one for each layer, joined by "
            "commas (default: --latent-dim)"
        },
    )


@dataclass
class LatentOptions(HeadSizeOptions):
    """Options of ``transformer_latent`` (DeepSeek-V2, arXiv 2405.04434)."""

    latent_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "numbers that are kept of a token, from which all heads make their keys and "
            "values (default: half the model dimension, a quarter of what ordinary heads keep)"
        },
    )
    latent_dim_in_encoder: Optional[str] = _latent_dim_in("encoder self-attention")
    latent_dim_in_decoder: Optional[str] = _latent_dim_in("decoder self-attention")
    latent_dim_in_cross: Optional[str] = _latent_dim_in("decoder-encoder attention")


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> HeadAttention:
    """The heads of one site in one layer; without heads, those of ``..._headsize_n``.

    Raises:
        ValueError: an option's value makes no sense.
    """
    heads, sizes = head_sizes(cfg, site, layer, num_heads)
    if not heads:
        return ConcatenatedAttention(embed_dim, heads, **sizes, **options)
    latent_dim = at_layer(cfg, "latent_dim", site, layer, least=1)
    if latent_dim is None:
        latent_dim = embed_dim // 2 if cfg.latent_dim is None else cfg.latent_dim
    return LatentAttention(embed_dim, heads, latent_dim, **sizes, **options)
