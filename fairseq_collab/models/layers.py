"""fairseq's transformer layers and encoder, with attention and widths that a model chooses.

A model puts an :class:`AttentionFactory` into its configuration, and the layers ask this factory
for the attention of each type.  Each feed-forward block has its layer's own width.  Nothing else
changes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import nn

from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.building import check_choice
from fairseq_collab.models.checks import check_steps, register_dictionary_signature
from fairseq_collab.models.options import CACHE_BITS, Site, at_layer, feed_forward_width, site_of

#: Builds the attention at a :class:`Site`.
AttentionFactory = Callable[[TransformerConfig, Site], HeadAttention]


def build_attention(cfg: TransformerConfig, site: Site) -> HeadAttention:
    """Build the attention at ``site`` with rounding and fairseq's dropout (--retain-dropout)."""
    attention = cfg.attention_factory(cfg, site)
    if site.type != "encoder":
        bits = at_layer(cfg, "cache_bits", site, CACHE_BITS)
        check_choice("cache bits", bits, CACHE_BITS)
        attention.cache_bits = int(bits)
    attention.dropout_module = FairseqDropout(
        cfg.attention_dropout, module_name="MultiheadAttention"
    )
    check_steps(attention, site.type)
    return attention


def name_dropout(module: nn.Module, name: str) -> None:
    """Give a module's own dropout the name ``name`` that fairseq gives to that of its class.

    ``--retain-dropout-modules`` takes these names; fairseq would give a subclass the subclass's
    name.
    """
    for child in module.children():
        if isinstance(child, FairseqDropout):
            child.module_name = name


@contextmanager
def maps_of_any_width() -> Iterator[None]:
    """Keep torch from warning that a map without numbers has none to initialise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        yield


class OwnWidth(nn.Module):
    """A layer of fairseq's whose feed-forward block is :attr:`width` wide.

    fairseq gives all layers of a side one width.  A block of width 0 is the constant ``b2``.
    """

    width: int

    def build_fc1(self, input_dim: int, _width: int, *noise: Any) -> nn.Module:
        with maps_of_any_width():
            return super().build_fc1(input_dim, self.width, *noise)  # type: ignore[misc]

    def build_fc2(self, _width: int, output_dim: int, *noise: Any) -> nn.Module:
        with maps_of_any_width():
            return super().build_fc2(self.width, output_dim, *noise)  # type: ignore[misc]


class EncoderLayer(OwnWidth, TransformerEncoderLayerBase):
    """fairseq's encoder layer with our attention."""

    #: Copies of the layer's weights that fairseq 0.12.2 makes for a fused inference kernel.  The
    #: kernel does not support our attention, and the copies would be counted as parameters.
    COPIES = tuple(
        f"{module}_{kind}"
        for module in ("in_proj", "out_proj", "fc1", "fc2")
        for kind in ("weight", "bias")
    )

    def __init__(self, cfg: TransformerConfig, layer: int, return_fc: bool = False):
        self.layer = layer  # before the parent, which builds the attention and the maps
        self.width = feed_forward_width(cfg, "encoder", layer)
        super().__init__(cfg, return_fc)
        name_dropout(self, "TransformerEncoderLayerBase")
        for name in self.COPIES:
            delattr(self, name)
        self.can_use_fastpath = False

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        # Not the parent's, which would fill the removed copies.
        nn.Module._load_from_state_dict(self, *args, **kwargs)

    def build_self_attention(self, embed_dim: int, cfg: TransformerConfig) -> HeadAttention:
        return build_attention(cfg, site_of(cfg, "encoder", self.layer))


def is_copy(name: str) -> bool:
    """Return whether a weight is one of :attr:`EncoderLayer.COPIES`, by its name in a model."""
    *_, layer, attribute = ["", *name.rsplit(".", 2)]
    return layer.isdigit() and attribute in EncoderLayer.COPIES


class DecoderLayer(OwnWidth, TransformerDecoderLayerBase):
    """fairseq's decoder layer with our attention."""

    def __init__(self, cfg: TransformerConfig, layer: int, no_encoder_attn: bool = False):
        self.layer = layer  # before the parent, which builds the attention and the maps
        self.width = feed_forward_width(cfg, "decoder", layer)
        super().__init__(cfg, no_encoder_attn)
        self.need_attn = False  # the decoder asks for the weights that it returns
        name_dropout(self, "TransformerDecoderLayerBase")

    def make_generation_fast_(self, **_options: Any) -> None:
        """Do nothing: the parent's method would change :attr:`need_attn` for good."""

    def build_self_attention(
        self, embed_dim: int, cfg: TransformerConfig, **_never: Any
    ) -> HeadAttention:
        # The others are add_bias_kv and add_zero_attn, for which fairseq's decoder never asks.
        return build_attention(cfg, site_of(cfg, "decoder", self.layer))

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> HeadAttention:
        return build_attention(cfg, site_of(cfg, "cross", self.layer))


class Encoder(TransformerEncoderBase):
    """fairseq's encoder with our layers."""

    #: Layers built so far: fairseq asks for one after the other, without its index.
    layers_built = 0

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding):
        super().__init__(cfg, dictionary, embed_tokens)
        name_dropout(self, "TransformerEncoder")
        register_dictionary_signature(self, dictionary)

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        layer = EncoderLayer(cfg, self.layers_built, return_fc=self.return_fc)
        self.layers_built += 1
        return wrap_layer(layer, cfg)


def wrap_layer(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """Add activation checkpointing and sharding if they are asked for, as fairseq's builders do."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        return fsdp_wrap(layer, min_num_params=0)
    return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
