"""``transformer_collab``: a transformer with collaborative heads (arXiv 2006.16362).

Presets: ``transformer_collab``, ``transformer_collab_iwslt_de_en``, ``..._wmt_en_de``,
``..._wmt_en_de_big``, ``..._multi30k``; sizes in :data:`fairseq_collab.models.config.PRESET_SIZES`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.models.base import HeadTransformer, register_presets
from fairseq_collab.models.config import CollabOptions
from fairseq_collab.models.layers import AttentionBuilder, Site
from fairseq_collab.models.site_options import by_layer, named_sites


class CollabTransformer(HeadTransformer):
    """A transformer whose heads share their query and key projections."""

    @classmethod
    def attention_builder(cls, cfg: TransformerConfig) -> AttentionBuilder:
        sites = named_sites("--collaborative-sites", cfg.collaborative_sites, or_none=True)
        key_dims = by_layer(cfg, "key_dim", least=0)
        return partial(build_attention, cfg=cfg, sites=sites, key_dims=key_dims)


def build_attention(
    site: Site,
    layer: int,
    embed_dim: int,
    num_heads: int,
    *,
    cfg: TransformerConfig,
    sites: tuple[Site, ...],
    key_dims: dict[Site, list[int] | None],
    **options: Any,
) -> HeadAttention:
    """Collaborative heads at the chosen ``sites``, ordinary heads of size ``d/H`` elsewhere.

    Also ordinary where ``key_dims`` has 0 for the layer; where it has none, ``--key-dim`` holds.
    """
    chosen = key_dims[site]
    if chosen is not None:
        key_dim = chosen[layer]
    else:
        key_dim = embed_dim // 4 if cfg.key_dim is None else cfg.key_dim
    if site not in sites or (chosen is not None and key_dim == 0):
        return ConcatenatedAttention(embed_dim, num_heads, **options)
    return CollaborativeAttention(
        embed_dim,
        num_heads,
        key_dim,
        mixing_init=cfg.mixing_init,
        scale=cfg.attention_scale,
        bias=cfg.attention_bias,
        value_init=cfg.value_init,
        **options,
    )


register_presets("transformer_collab", CollabTransformer, CollabOptions)
