"""Models whose heads have separate keys: ``..._headsize_n``, ``..._grouped_heads``.

``..._headsize_n`` (Bhojanapalli et al. 2020, arXiv 2002.07028) has heads of any size and number;
without further options it is fairseq's model.

``..._grouped_heads`` (Ni et al. 2023, arXiv 2305.14380) has the options and the function of
``..._headsize_n``.  ``--criterion label_smoothed_cross_entropy_with_head_groups``, or
``adaptive_loss_with_head_groups`` for language models with adaptive softmax, trains the groups.
``fairseq-collab vote`` and ``prune`` keep one head per group.
"""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import SeparateAttention
from fairseq_collab.attention.building import INITS, SCALES, check_sizes
from fairseq_collab.attention.head_groups import FEATURES, HeadGroupAttention
from fairseq_collab.models.options import Site, at_layer, in_types, option


@in_types("heads", "number of heads", zero="; 0 for no attention in that layer")
@dataclass
class HeadOptions(FairseqDataclass):
    """Number and sizes of heads: options of all variants that have them."""

    head_size: Optional[int] = option(
        None,
        "size of a head's query, key and value (default: model width/heads)",
    )
    qk_head_size: Optional[int] = option(
        None, "size of a head's query and key (default: --head-size)"
    )
    v_head_size: Optional[int] = option(None, "size of a head's value (default: --head-size)")


@dataclass
class HeadSizeOptions(HeadOptions):
    """Further options of heads with separate projections, or from a latent.

    ``key_dim`` is the paper's ``D_k``, as in ``transformer_collab``: the outputs of the projection
    that makes an attention's keys, whether its heads share them or each has its own part.
    """

    key_dim: Optional[int] = option(
        None,
        "key width K: total size of a token's keys in an attention, all heads together; "
        "instead of --qk-head-size",
    )
    attention_scale: str = option(
        "key",
        "scale of the scores: (query/key head size)^-0.5 (key), or (model width/heads)^-0.5 at "
        "every head size (embed, as in the baseline of arXiv 2006.16362's translation code)",
        SCALES,
    )


@dataclass
class SeparateOptions(HeadSizeOptions):
    """Options of ``transformer_headsize_n`` (Bhojanapalli et al. 2020, arXiv 2002.07028)."""

    key_init: str = option(
        "constant",
        "initial queries and keys: with fairseq's gain 1/sqrt(2) (constant), or with gain 1 where "
        "their total width is not the model width (fork, as in arXiv 2006.16362's translation "
        "code)",
        INITS,
    )
    value_init: str = option("constant", "initial values, like --key-init", INITS)


def separate_heads(cfg: TransformerConfig, site: Site) -> SeparateAttention:
    """Build the heads at ``site``."""
    heads, sizes = head_options(cfg, site)
    return SeparateAttention(site.embed_dim, heads, **sizes)


def head_options(cfg: TransformerConfig, site: Site) -> tuple[int, dict[str, Any]]:
    """Return the number of heads, and further arguments of :class:`SeparateAttention`."""
    heads, sizes = head_sizes(cfg, site)
    return heads, {**sizes, "key_init": cfg.key_init, "value_init": cfg.value_init}


def head_sizes(cfg: TransformerConfig, site: Site) -> tuple[int, dict[str, Any]]:
    """Return the number of heads, their sizes and scale, by :class:`HeadSizeOptions`."""
    heads = at_layer(cfg, "heads", site, 0, site.num_heads)
    sizes = checked_sizes(cfg, site, query_key_size(cfg, heads))
    return heads, {**sizes, "scale": cfg.attention_scale}


def checked_sizes(cfg: TransformerConfig, site: Site, query_key: int | None) -> dict[str, Any]:
    """Return the sizes of heads as arguments of attentions; None means ``d/H``."""
    value = cfg.head_size if cfg.v_head_size is None else cfg.v_head_size
    return limited(site, qk_head_size=query_key, v_head_size=value)


def limited(site: Site, **sizes: int | None) -> dict[str, Any]:
    """Return these sizes of heads, and that of the keys' input, as arguments of attentions.

    Raises:
        ValueError: a size is below 1, or so large that a smaller one computes all that it can.
    """
    chosen = {name: size for name, size in sizes.items() if size is not None}
    check_sizes(**chosen, most=max(site.embed_dim, site.kdim) + 1)
    return {**sizes, "kdim": site.kdim}


def query_key_size(cfg: TransformerConfig, heads: int) -> int | None:
    """Return ``h_qk`` from ``--key-dim``, ``--qk-head-size`` or ``--head-size``; None for ``d/H``.

    Raises:
        ValueError: two of the options contradict each other, or the heads cannot share the key
            width.
    """
    if cfg.key_dim is None:
        return cfg.head_size if cfg.qk_head_size is None else cfg.qk_head_size
    if cfg.qk_head_size is not None:
        raise ValueError(
            "--key-dim and --qk-head-size both say how large queries and keys are: give one"
        )
    if heads == 0:
        return None
    if cfg.key_dim < 1 or cfg.key_dim % heads:
        raise ValueError(
            f"--key-dim {cfg.key_dim} cannot be shared evenly by {heads} heads: "
            "give a multiple of their number"
        )
    return cfg.key_dim // heads


# ---- groups of heads ----------------------------------------------------------------------------


@dataclass
class HeadGroupOptions(SeparateOptions):
    """Options of ``transformer_grouped_heads`` (Ni et al. 2023, arXiv 2305.14380)."""

    head_groups: Optional[int] = option(
        None, "number of groups in each attention (default: a quarter of the heads)"
    )
    group_feature: str = option(
        "value",
        "feature by which heads are grouped: value, attention weights (attention), or output "
        "before out_proj (output)",
        FEATURES,
    )


def grouped_heads(cfg: TransformerConfig, site: Site) -> SeparateAttention:
    """Build the heads at ``site``; without heads, those of ``..._headsize_n``."""
    heads, sizes = head_options(cfg, site)
    if not heads:
        return SeparateAttention(site.embed_dim, heads, **sizes)
    groups = max(1, heads // 4) if cfg.head_groups is None else cfg.head_groups
    group_options = {"groups": groups, "feature": cfg.group_feature, "attention_type": site.type}
    return HeadGroupAttention(site.embed_dim, heads, **group_options, **sizes)
