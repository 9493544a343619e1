"""Models with multi-matrix factorization attention (Hu et al. 2024, 2412.19255): ``..._mfa``."""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention.mfa import MFAAttention
from fairseq_collab.models.config import option
from fairseq_collab.models.layers import Site
from fairseq_collab.models.site_options import at_layer, in_site

_key_dim = partial(in_site, "shared width", default="--key-dim")
_heads = partial(in_site, "heads", default="--encoder-attention-heads, --decoder-attention-heads")


@dataclass
class MFAOptions(FairseqDataclass):
    """Options of ``transformer_mfa`` (Hu et al. 2024, arXiv 2412.19255)."""

    key_dim: Optional[int] = option(
        None,
        "width of the key and of the value that all heads of an attention share (default: a "
        "quarter of the model dimension)",
    )
    key_dim_in_encoder: Optional[str] = _key_dim("encoder")
    key_dim_in_decoder: Optional[str] = _key_dim("decoder")
    key_dim_in_cross: Optional[str] = _key_dim("cross")
    heads_in_encoder: Optional[str] = _heads("encoder")
    heads_in_decoder: Optional[str] = _heads("decoder")
    heads_in_cross: Optional[str] = _heads("cross")


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> MFAAttention:
    """The heads of one attention type in one layer."""
    heads = at_layer(cfg, "heads", site, layer, 1, num_heads)
    usual = embed_dim // 4 if cfg.key_dim is None else cfg.key_dim
    width = at_layer(cfg, "key_dim", site, layer, 1, usual)
    return MFAAttention(embed_dim, heads, width, **options)
