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
from fairseq_collab.models.config import HeadSizeOptions, one_a_layer
from fairseq_collab.models.layers import AttentionBuilder, Site


class HeadSizeTransformer(HeadTransformer):
    """A transformer whose heads are as many and as large as asked for."""

    @classmethod
    def attention_builder(cls, cfg: TransformerConfig) -> AttentionBuilder:
        counts = {
            "encoder": head_counts("encoder", cfg.heads_in_encoder, cfg.encoder.layers),
            "decoder": head_counts("decoder", cfg.heads_in_decoder, cfg.decoder.layers),
            "cross": head_counts("cross", cfg.heads_in_cross, cfg.decoder.layers),
        }
        return partial(build_attention, cfg=cfg, counts=counts)


def build_attention(
    site: Site,
    layer: int,
    embed_dim: int,
    num_heads: int,
    *,
    cfg: TransformerConfig,
    counts: dict[str, list[int] | None],
    **options: Any,
) -> ConcatenatedAttention:
    """The heads of one site in one layer; ``num_heads`` where no count is given for them."""
    chosen = counts[site]
    heads = num_heads if chosen is None else chosen[layer]
    return ConcatenatedAttention(
        embed_dim,
        heads,
        qk_head_size=query_key_size(cfg, heads),
        v_head_size=cfg.head_size if cfg.v_head_size is None else cfg.v_head_size,
        scale=cfg.attention_scale,
        key_init=cfg.key_init,
        value_init=cfg.value_init,
        **options,
    )


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


def head_counts(site: Site, text: str | None, layers: int) -> list[int] | None:
    """Parse ``--heads-in-SITE``: a number for all layers, or one a layer, joined by commas.

    Raises:
        ValueError: not numbers, or as many as neither one nor the layers.
    """
    return one_a_layer(f"--heads-in-{site}", text, layers, least=1)


register_presets("transformer_headsize_n", HeadSizeTransformer, HeadSizeOptions)
