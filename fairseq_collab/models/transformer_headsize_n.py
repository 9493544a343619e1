"""``transformer_headsize_n``: concatenated heads of any size and number (arXiv 2002.07028).

Presets as for ``transformer_collab``: ``transformer_headsize_n``, ``..._iwslt_de_en``,
``..._wmt_en_de``, ``..._wmt_en_de_big``, ``..._multi30k``; without further options each is
fairseq's transformer of the same sizes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import ConcatenatedAttention
from fairseq_collab.models.base import HeadTransformer, register_presets
from fairseq_collab.models.config import HeadSizeOptions
from fairseq_collab.models.layers import AttentionBuilder, Site
from fairseq_collab.models.site_options import by_layer

#: Heads by site and layer; None for as many as ``--SIDE-attention-heads`` says.
HeadCounts = dict[Site, list[int] | None]


class HeadSizeTransformer(HeadTransformer):
    """A transformer whose heads are as many and as large as asked for."""

    @classmethod
    def attention_builder(cls, cfg: TransformerConfig) -> AttentionBuilder:
        return partial(build_attention, cfg=cfg, counts=by_layer(cfg, "heads", least=1))


def build_attention(
    site: Site,
    layer: int,
    embed_dim: int,
    num_heads: int,
    *,
    cfg: TransformerConfig,
    counts: HeadCounts,
    **options: Any,
) -> ConcatenatedAttention:
    """The heads of one site in one layer; ``num_heads`` where no count is given for them."""
    heads = heads_of(counts, site, layer, num_heads)
    return ConcatenatedAttention(embed_dim, heads, **head_options(cfg, heads), **options)


def heads_of(counts: HeadCounts, site: Site, layer: int, otherwise: int) -> int:
    """How many heads one site of a layer has."""
    chosen = counts[site]
    return otherwise if chosen is None else chosen[layer]


def head_options(cfg: TransformerConfig, heads: int) -> dict[str, Any]:
    """What so many heads are built with, as keyword arguments of :class:`ConcatenatedAttention`.

    Raises:
        ValueError: see :func:`query_key_size`.
    """
    return {
        "qk_head_size": query_key_size(cfg, heads),
        "v_head_size": cfg.head_size if cfg.v_head_size is None else cfg.v_head_size,
        "scale": cfg.attention_scale,
        "key_init": cfg.key_init,
        "value_init": cfg.value_init,
    }


def query_key_size(cfg: TransformerConfig, heads: int) -> int | None:
    """``h_qk`` from ``--key-dim``, ``--qk-head-size`` or ``--head-size``; None for ``d/H``.

    Raises:
        ValueError: two of them that contradict, or a key dimension that the heads cannot share.
    """
    if cfg.key_dim is None:
        return cfg.head_size if cfg.qk_head_size is None else cfg.qk_head_size
    if cfg.qk_head_size is not None:
        raise ValueError(
            "--key-dim and --qk-head-size both say how large queries and keys are: give one"
        )
    if cfg.key_dim < 1 or cfg.key_dim % heads:
        raise ValueError(
            f"--key-dim {cfg.key_dim} does not deal out evenly to {heads} heads: "
            "give a multiple of their number"
        )
    return cfg.key_dim // heads


register_presets("transformer_headsize_n", HeadSizeTransformer, HeadSizeOptions)
