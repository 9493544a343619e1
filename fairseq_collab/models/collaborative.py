"""Models with collaborative heads (Cordonnier et al. 2020, arXiv 2006.16362): ``..._collab``."""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
import functools
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.collaborative import QUERY_MIXINGS
from fairseq_collab.models.config import option
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.models.site_options import at_layer, in_site, word_at_layer

_key_dim = functools.partial(
    in_site, "key dimension", default="--key-dim", zero="; 0 for standard heads in that layer"
)

_value_heads = functools.partial(
    in_site, "value heads of collaborative heads", default="--value-heads"
)

_query_mixing = functools.partial(in_site, "query mixing", default="--query-mixing", what="a word")

#: The options that give single attention types a key width.
IN_SITES = tuple(f"key_dim_in_{site}" for site in SITES)


@dataclass
class CollabOptions(FairseqDataclass):
    """Options of ``transformer_collab`` (Cordonnier et al. 2020, arXiv 2006.16362)."""

    key_dim: Optional[int] = option(
        None,
        "width of the key that all heads of an attention share; 0 for standard heads (default: a "
        "quarter of the model dimension)",
    )
    key_dim_in_encoder: Optional[str] = _key_dim("encoder")
    key_dim_in_decoder: Optional[str] = _key_dim("decoder")
    key_dim_in_cross: Optional[str] = _key_dim("cross")
    value_heads: Optional[int] = option(
        None,
        "number of value heads, a divisor of the heads (default: one per head, as in the paper)",
    )
    value_heads_in_encoder: Optional[str] = _value_heads("encoder")
    value_heads_in_decoder: Optional[str] = _value_heads("decoder")
    value_heads_in_cross: Optional[str] = _value_heads("cross")
    query_mixing: str = option(
        "diagonal",
        "queries of a head from the shared query: diagonal (Cordonnier et al. 2020: one factor per "
        "dimension), full (a matrix per head), own (a projection of the input per head)",
    )
    query_mixing_in_encoder: Optional[str] = _query_mixing("encoder")
    query_mixing_in_decoder: Optional[str] = _query_mixing("decoder")
    query_mixing_in_cross: Optional[str] = _query_mixing("cross")
    v_head_size: Optional[int] = option(None, "size of a value head (default: d / heads)")
    mixing_init: str = option(
        "block",
        "initial mixing: block (starts as standard heads of size key-dim/heads), xavier (as the "
        "authors' translation code; own queries: fairseq's start), normal (std 0.2, as their "
        "library)",
    )
    attention_scale: str = option(
        "embed",
        "scale of the scores: embed for (model dimension/heads)^-0.5 at every key width (as the "
        "authors' translation code), key for (key-dim/heads)^-0.5 (as their library)",
    )
    attention_bias: str = option(
        "projection",
        "projection (query and key biases, as the authors' translation code), content (one "
        "content vector a head, as their library), none",
    )
    value_init: str = option(
        "constant",
        "initial values: constant (fairseq's own at every key dimension), fork (gain 1 in place "
        "of 1/sqrt(2) wherever the key dimension is not the model dimension, as the authors' "
        "translation code)",
    )


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> HeadAttention:
    """The heads of one attention type in one layer; standard heads where the key width is 0."""
    usual = embed_dim // 4 if cfg.key_dim is None else cfg.key_dim
    key_dim = at_layer(cfg, "key_dim", site, layer, least=0, default=usual)
    if key_dim == 0:
        return ConcatenatedAttention(embed_dim, num_heads, **options)
    return CollaborativeAttention(
        embed_dim,
        num_heads,
        key_dim,
        query_mixing=word_at_layer(
            cfg, "query_mixing", site, layer, QUERY_MIXINGS, cfg.query_mixing
        ),
        v_head_size=cfg.v_head_size,
        value_heads=at_layer(cfg, "value_heads", site, layer, 1, cfg.value_heads),
        mixing_init=cfg.mixing_init,
        scale=cfg.attention_scale,
        bias=cfg.attention_bias,
        value_init=cfg.value_init,
        **options,
    )
