"""Models with collaborative heads (Cordonnier et al. 2020, arXiv 2006.16362): ``..._collab``."""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
import functools
import logging
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.collaborative import QUERY_MIXINGS
from fairseq_collab.models.config import option
from fairseq_collab.models.layers import Site
from fairseq_collab.models.site_options import at_layer, in_site, named_sites, word_at_layer

logger = logging.getLogger(__name__)

_key_dim = functools.partial(
    in_site, "key dimension", default="--key-dim", zero="; 0 for ordinary heads in that layer"
)

_value_heads = functools.partial(
    in_site, "value heads of collaborative heads", default="--value-heads"
)

_query_mixing = functools.partial(in_site, "query mixing", default="--query-mixing", what="a word")


@dataclass
class CollabOptions(FairseqDataclass):
    """Options of ``transformer_collab`` (Cordonnier et al. 2020, arXiv 2006.16362)."""

    key_dim: Optional[int] = option(
        None,
        "width of the key that all heads of an attention share (default: a quarter of "
        "the model dimension)",
    )
    key_dim_in_encoder: Optional[str] = _key_dim("encoder")
    key_dim_in_decoder: Optional[str] = _key_dim("decoder")
    key_dim_in_cross: Optional[str] = _key_dim("cross")
    value_heads: Optional[int] = option(
        None,
        "values of collaborative heads, each shared by as many heads: any number that divides "
        "these (default: one a head, as in the paper)",
    )
    value_heads_in_encoder: Optional[str] = _value_heads("encoder")
    value_heads_in_decoder: Optional[str] = _value_heads("decoder")
    value_heads_in_cross: Optional[str] = _value_heads("cross")
    collaborative_sites: str = option(
        "encoder,decoder,cross",
        "attentions with collaborative heads: some of encoder, decoder (its self-attention), "
        "cross, joined by commas, or none; the others keep ordinary heads",
    )
    query_mixing: str = option(
        "diagonal",
        "queries of a head from the shared query: diagonal (Cordonnier et al. 2020: one factor per "
        "dimension), full (a matrix per head), own (a projection of the input per head)",
    )
    query_mixing_in_encoder: Optional[str] = _query_mixing("encoder")
    query_mixing_in_decoder: Optional[str] = _query_mixing("decoder")
    query_mixing_in_cross: Optional[str] = _query_mixing("cross")
    v_head_size: Optional[int] = option(
        None, "size of a value head of collaborative heads (default: model dimension / heads)"
    )
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


@functools.cache  # once, not for every layer
def warn_of_other_sites(site: Site) -> None:
    """Not refused: there are checkpoints with both options."""
    logger.warning("--key-dim-in-%s has no effect: --collaborative-sites leaves %s out", site, site)


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> HeadAttention:
    """Collaborative heads at the chosen sites, ordinary heads of size ``d/H`` elsewhere.

    Also ordinary where ``--key-dim-in-SITE`` has 0 for the layer; where it is not given,
    ``--key-dim`` holds.
    """
    sites = named_sites("--collaborative-sites", cfg.collaborative_sites, or_none=True)
    key_dim = at_layer(cfg, "key_dim", site, layer, least=0)
    if site not in sites and key_dim:
        warn_of_other_sites(site)
    if site not in sites or key_dim == 0:
        return ConcatenatedAttention(embed_dim, num_heads, **options)
    if key_dim is None:
        key_dim = embed_dim // 4 if cfg.key_dim is None else cfg.key_dim
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
