"""Models whose heads share keys, or keys and values.

- ``..._collab``: one key of any width (Cordonnier et al. 2020, arXiv 2006.16362)
- ``..._grouped_query``: keys and values, by groups of heads (Shazeer 2019, arXiv 1911.02150;
  Ainslie et al. 2023, arXiv 2305.13245); one group per head is fairseq's model of these sizes
- ``..._latent``: one latent that keys and values of all heads come from (DeepSeek-V2, arXiv
  2405.04434); all cross-attentions can share theirs
"""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from torch import nn

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.building import INITS, SCALES, check_sizes
from fairseq_collab.attention.collaborative import MIXING_INITS, QUERY_MIXINGS, widest_key
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.shared_latent import SharedLatentAttention
from fairseq_collab.models.options import Site, at_layer, in_types, option
from fairseq_collab.models.separate_heads import (
    HeadOptions,
    HeadSizeOptions,
    checked_sizes,
    head_sizes,
    limited,
)

#: What options of shared keys, of standard heads and of latents need to have an effect.
_SHARED = "a key width above 0 (--key-dim, --key-dim-in-TYPE)"
_STANDARD = "some layers standard heads (--key-dim-in-TYPE 0)"
_LATENT = "a latent width above 0 (--latent-dim, --latent-dim-in-TYPE)"


@in_types("key_dim", "key width", zero="; 0 for standard heads in that layer")
@in_types("value_heads", "number of value heads")
@in_types("heads", "number of heads", zero="; 0 for no attention in that layer")
@dataclass
class CollabOptions(FairseqDataclass):
    """Options of ``transformer_collab`` (Cordonnier et al. 2020, arXiv 2006.16362)."""

    key_dim: Optional[int] = option(
        None,
        "key width K: size of the one key per token that all heads of an attention share; "
        "0 for standard heads (default: a quarter of the model width)",
    )
    value_heads: Optional[int] = option(
        None,
        "number of value heads, a divisor of the heads (default: one per head, as in the paper)",
        needs=_SHARED,
    )
    query_mixing: str = option(
        "full",
        "query of each head: the shared query times a matrix (full) or a vector (diagonal, "
        "Cordonnier et al. 2020), or a projection of the input per head (own)",
        QUERY_MIXINGS,
        needs=_SHARED,
    )
    v_head_size: Optional[int] = option(None, "size of a head's value (default: model width/heads)")
    qk_head_size: Optional[int] = option(
        None,
        "size of a query and key of standard heads (default: model width/heads)",
        needs=_STANDARD,
    )
    mixing_init: str = option(
        "block",
        "initial mixing: standard heads of size key-dim/heads (block), or as in the authors' "
        "translation code and, for own queries, in fairseq (xavier)",
        MIXING_INITS,
        needs=_SHARED,
    )
    attention_scale: str = option(
        "embed",
        "scale of the scores: (model width/heads)^-0.5 at every key width (embed, as in the "
        "authors' translation code) or (key-dim/heads)^-0.5 (key, as in their library)",
        SCALES,
        needs=_SHARED,
    )
    value_init: str = option(
        "constant",
        "initial values: as in fairseq (constant), or with gain 1 instead of 1/sqrt(2) where "
        "key-dim is not the model width (fork, as in the authors' translation code)",
        INITS,
        needs=_SHARED,
    )


def shared_keys(cfg: TransformerConfig, site: Site) -> HeadAttention:
    """Build the heads at ``site``; standard heads where the key width is 0, or without heads."""
    heads = at_layer(cfg, "heads", site, 0, site.num_heads)
    key_dim = at_layer(cfg, "key_dim", site, 0, site.embed_dim // 4)
    if not heads or not key_dim:
        sizes = limited(site, qk_head_size=cfg.qk_head_size, v_head_size=cfg.v_head_size)
        return SeparateAttention(site.embed_dim, heads, **sizes)
    check_sizes(key_dim=key_dim, most=widest_key(cfg.query_mixing, site.embed_dim, site.kdim))
    if cfg.v_head_size is not None:
        check_sizes(v_head_size=cfg.v_head_size, most=max(site.embed_dim, site.kdim) + 1)
    return CollaborativeAttention(
        site.embed_dim,
        heads,
        key_dim,
        kdim=site.kdim,
        query_mixing=cfg.query_mixing,
        v_head_size=cfg.v_head_size,
        value_heads=at_layer(cfg, "value_heads", site, 1),
        mixing_init=cfg.mixing_init,
        scale=cfg.attention_scale,
        value_init=cfg.value_init,
    )


@in_types("key_value_heads", "number of key/value heads")
@dataclass
class GroupedQueryOptions(HeadOptions):
    """Options of ``transformer_grouped_query`` (Ainslie et al. 2023, arXiv 2305.13245)."""

    key_value_heads: int = option(
        1,
        "number of key/value heads, a divisor of the number of heads; 1 is multi-query attention, "
        "and the number of heads itself gives standard heads",
    )


def grouped_query(cfg: TransformerConfig, site: Site) -> HeadAttention:
    """Build the heads at ``site``; without heads, those of ``..._headsize_n``."""
    heads = at_layer(cfg, "heads", site, 0, site.num_heads)
    query_key = cfg.head_size if cfg.qk_head_size is None else cfg.qk_head_size
    sizes = checked_sizes(cfg, site, query_key)
    shared = at_layer(cfg, "key_value_heads", site, 1)
    if not heads:
        return SeparateAttention(site.embed_dim, 0, **sizes)
    return GroupedQueryAttention(site.embed_dim, heads, shared, **sizes)


@in_types("latent_dim", "latent width", zero="; 0 for standard heads in that layer")
@dataclass
class LatentOptions(HeadSizeOptions):
    """Options of ``transformer_latent`` (DeepSeek-V2, arXiv 2405.04434)."""

    latent_dim: Optional[int] = option(
        None,
        "width of the vector per token from which all heads compute keys and values (default: half "
        "the model width, which takes a quarter of the KV cache of standard heads)",
    )
    shared_latent_in_cross: Optional[int] = option(
        None,
        "width of one vector per source token from which the cross-attentions of all layers "
        "compute keys and values: the encoder's width for its output itself, less for a projection "
        "of it (default: each layer has its own)",
    )
    latent_norm: bool = option(
        False,
        "normalise the latent, as DeepSeek-V2 does; models with this option cannot be priced, "
        "converted or exported",
        needs=_LATENT,
    )


def latent(cfg: TransformerConfig, site: Site) -> HeadAttention:
    """Build the heads at ``site``; without heads or latent, those of ``..._headsize_n``."""
    heads, sizes = head_sizes(cfg, site)
    shared = cfg.shared_latent_in_cross
    if site.type == "cross" and shared is not None:
        return shared_latent(cfg, site, shared)
    latent_dim = at_layer(cfg, "latent_dim", site, 0, site.embed_dim // 2)
    if not heads or not latent_dim:
        return SeparateAttention(site.embed_dim, heads, **sizes)
    # The keys and values of standard heads; a latent as wide as the input can say all.
    check_sizes(latent_dim=latent_dim, most=2 * max(site.embed_dim, site.kdim))
    return LatentAttention(site.embed_dim, heads, latent_dim, normalise=cfg.latent_norm, **sizes)


def shared_latent(cfg: TransformerConfig, site: Site, latent_dim: int) -> HeadAttention:
    """Build the heads of a cross-attention that is to share a latent of this width.

    Raises:
        ValueError: latent widths are also given by layer, or the latent is wider than the source.
    """
    if cfg.latent_dim_in_cross is not None:
        raise ValueError(
            "--shared-latent-in-cross is one width for all layers, --latent-dim-in-cross has one "
            "per layer: give one of the options"
        )
    check_sizes(shared_latent_in_cross=latent_dim, most=site.kdim)
    heads, sizes = head_sizes(cfg, site)
    if not heads:
        return SeparateAttention(site.embed_dim, heads, **sizes)
    options = {"normalise": cfg.latent_norm, **sizes}
    return SharedLatentAttention(site.embed_dim, heads, latent_dim, **options)


def share_latents(model: nn.Module, options: dict[str, Any]) -> None:
    """Make all cross-attentions of a model share their latent.

    Raises:
        UserError: there are no cross-attentions with heads, or their caches are rounded in
            different ways.
    """
    if options.get("shared_latent_in_cross") is None:
        return
    sharing = [m for m in model.modules() if isinstance(m, SharedLatentAttention)]
    if not sharing:
        problem = "the model has no heads of cross-attention"
        raise UserError(problem, "--shared-latent-in-cross", "leave it out")
    if len(bits := sorted({attention.cache_bits for attention in sharing})) > 1:
        problem = f"one cache for all layers cannot have {' and '.join(map(str, bits))} bits"
        raise UserError(problem, "--cache-bits-in-cross", "give one number")
    for attention in sharing:
        attention.share(sharing[0])
