"""Models with collaborative heads (Cordonnier et al. 2020, arXiv 2006.16362): ``..._collab``."""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.collaborative import NOISE
from fairseq_collab.models.layers import Site
from fairseq_collab.models.site_options import at_layer, named_sites


def _key_dim_in(site: str) -> Any:
    """The option for the shared key dimensions of one attention site."""
    return field(
        default=None,
        metadata={
            "help": f"key dimension in {site}: a number, or one for each layer, joined by commas; "
            "0 for ordinary heads in that layer (default: --key-dim)"
        },
    )


def _value_heads_in(site: str) -> Any:
    """The option for the value heads of one attention site."""
    return field(
        default=None,
        metadata={
            "help": f"value heads of collaborative heads in {site}: a number, or one for each "
            "layer, joined by commas (default: --value-heads)"
        },
    )


@dataclass
class CollabOptions(FairseqDataclass):
    """Options of ``transformer_collab`` (Cordonnier et al. 2020, arXiv 2006.16362)."""

    key_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "size of the query/key space that all heads of an attention share "
            "(default: a quarter of the model dimension)"
        },
    )
    key_dim_in_encoder: Optional[str] = _key_dim_in("encoder self-attention")
    key_dim_in_decoder: Optional[str] = _key_dim_in("decoder self-attention")
    key_dim_in_cross: Optional[str] = _key_dim_in("decoder-encoder attention")
    value_heads: Optional[int] = field(
        default=None,
        metadata={
            "help": "values of collaborative heads, each shared by as many heads: any number that "
            "divides these (default: one a head, as in the paper)"
        },
    )
    value_heads_in_encoder: Optional[str] = _value_heads_in("encoder self-attention")
    value_heads_in_decoder: Optional[str] = _value_heads_in("decoder self-attention")
    value_heads_in_cross: Optional[str] = _value_heads_in("decoder-encoder attention")
    collaborative_sites: str = field(
        default="encoder,decoder,cross",
        metadata={
            "help": "attentions with collaborative heads: some of encoder, decoder (its "
            "self-attention), cross, joined by commas, or none; the others keep ordinary heads"
        },
    )
    mixing_init: str = field(
        default="block",
        metadata={
            "help": "initial mixing: block (starts as concatenated heads of size key-dim/heads), "
            "xavier (as the authors' translation code), normal (std 0.2, as their library), ones, "
            "block_noise (block and normal noise), orthogonal (random orthogonal rows, as long as "
            "those of block)"
        },
    )
    mixing_noise: float = field(
        default=NOISE,
        metadata={"help": "standard deviation of the noise of --mixing-init block_noise"},
    )
    mixing_speed: int = field(
        default=1,
        metadata={
            "help": "the mixing is so many times its parameter, which Adam then moves so many "
            "times farther; 1, or a whole number above"
        },
    )
    attention_scale: str = field(
        default="embed",
        metadata={
            "help": "scale of the scores: embed for (model dimension/heads)^-0.5 at every key "
            "dimension (as the authors' translation code), key for (key-dim/heads)^-0.5 (as "
            "their library), variance for scores that have at the start the variance of ordinary "
            "heads' at every key dimension"
        },
    )
    learn_attention_scale: bool = field(
        default=False,
        metadata={"help": "train a factor of the scale for each head, 1 at the start"},
    )
    attention_bias: str = field(
        default="projection",
        metadata={
            "help": "projection (query and key biases, as the authors' translation code), content "
            "(one content vector a head, as their library), none"
        },
    )
    value_init: str = field(
        default="constant",
        metadata={
            "help": "initial values: constant (fairseq's own at every key dimension), fork (gain 1 "
            "in place of 1/sqrt(2) wherever the key dimension is not the model dimension, as the "
            "authors' translation code)"
        },
    )


def attention(
    cfg: TransformerConfig, site: Site, layer: int, embed_dim: int, num_heads: int, **options: Any
) -> HeadAttention:
    """Collaborative heads at the chosen sites, ordinary heads of size ``d/H`` elsewhere.

    Also ordinary where ``--key-dim-in-SITE`` has 0 for the layer; where it is not given,
    ``--key-dim`` holds.
    """
    sites = named_sites("--collaborative-sites", cfg.collaborative_sites, or_none=True)
    key_dim = at_layer(cfg, "key_dim", site, layer, least=0)
    if site not in sites or key_dim == 0:
        return ConcatenatedAttention(embed_dim, num_heads, **options)
    if key_dim is None:
        key_dim = embed_dim // 4 if cfg.key_dim is None else cfg.key_dim
    value_heads = at_layer(cfg, "value_heads", site, layer, least=1)
    return CollaborativeAttention(
        embed_dim,
        num_heads,
        key_dim,
        value_heads=cfg.value_heads if value_heads is None else value_heads,
        mixing_init=cfg.mixing_init,
        mixing_noise=cfg.mixing_noise,
        mixing_speed=cfg.mixing_speed,
        scale=cfg.attention_scale,
        learn_scale=cfg.learn_attention_scale,
        bias=cfg.attention_bias,
        value_init=cfg.value_init,
        **options,
    )
