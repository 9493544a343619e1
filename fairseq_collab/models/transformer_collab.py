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
from fairseq_collab.models.config import CollabOptions, one_a_layer
from fairseq_collab.models.layers import SITES, AttentionBuilder, Site


class CollabTransformer(HeadTransformer):
    """A transformer whose heads share their query and key projections."""

    @classmethod
    def attention_builder(cls, cfg: TransformerConfig) -> AttentionBuilder:
        sites = collaborative_sites(cfg.collaborative_sites)
        return partial(build_attention, cfg=cfg, sites=sites, key_dims=key_dims(cfg))


def build_attention(
    site: Site,
    layer: int,
    embed_dim: int,
    num_heads: int,
    *,
    cfg: TransformerConfig,
    sites: frozenset[Site],
    key_dims: dict[Site, list[int] | None],
    **options: Any,
) -> HeadAttention:
    """Collaborative heads at the chosen ``sites``, ordinary heads of size ``d/H`` elsewhere.

    Also ordinary where ``key_dims`` has 0 for the layer.
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


def key_dims(cfg: TransformerConfig) -> dict[Site, list[int] | None]:
    """``--key-dim-in-SITE`` of all sites: one key dimension a layer, or None for ``--key-dim``.

    Raises:
        ValueError: not numbers, or as many as neither one nor the layers.
    """
    texts: dict[Site, tuple[str | None, int]] = {
        "encoder": (cfg.key_dim_in_encoder, cfg.encoder.layers),
        "decoder": (cfg.key_dim_in_decoder, cfg.decoder.layers),
        "cross": (cfg.key_dim_in_cross, cfg.decoder.layers),
    }
    return {
        site: one_a_layer(f"--key-dim-in-{site}", text, layers, least=0)
        for site, (text, layers) in texts.items()
    }


def collaborative_sites(text: str) -> frozenset[Site]:
    """Parse ``--collaborative-sites``: names of :data:`SITES` joined by commas, or ``none``.

    Raises:
        ValueError: an unknown name.
    """
    names = [] if text == "none" else text.split(",")
    unknown = set(names) - set(SITES)
    if unknown or not text:
        raise ValueError(
            f"--collaborative-sites is {text!r}; it must name some of {', '.join(SITES)}, joined "
            "by commas, or be none"
        )
    return frozenset(site for site in SITES if site in names)


register_presets("transformer_collab", CollabTransformer, CollabOptions)
