"""What all our models share: building and loading, with checks; and encoder-decoder models."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fairseq.models import BaseFairseqModel, register_model
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from omegaconf import DictConfig
from torch import nn

from collab_common.errors import UserError
from fairseq_collab.kernels.onednn import swap_linear
from fairseq_collab.models.config import PRESET_SIZES, plain_options, preset
from fairseq_collab.models.decoder import Decoder
from fairseq_collab.models.layers import AttentionBuilder, Encoder
from fairseq_collab.models.signature import check_weights

#: Options of fairseq's transformer that do not work with our attention, and why.
_QUANTISES = "quantises fairseq's own attention modules; this model has its own"
_XFORMERS = "xFormers replaces fairseq's own attention; this model has its own"
_UNSUPPORTED = {
    "quant_noise_pq": f"--quant-noise-pq {_QUANTISES}",
    "quant_noise_scalar": f"--quant-noise-scalar {_QUANTISES}",
    "encoder_xformers_att_config": _XFORMERS,
    "decoder_xformers_att_config": _XFORMERS,
    "scale_heads": "--scale-heads wants heads of size (model dimension/heads)",
    "cross_self_attention": "--cross-self-attention caches the encoder's states once a beam; here "
    "the beams of a sentence share their cache",
}


class HeadModel(BaseFairseqModel):
    """A model whose attention is one of ours.

    It is built from flat options, and its weights are compared with its signatures before any of
    them is loaded.
    """

    @classmethod
    def build_model(cls, cfg: DictConfig, task: Any) -> HeadModel:
        """Build the model that flat options describe.

        Raises:
            UserError: an option's value makes no sense, or is not supported.
        """
        given = plain_options(cfg)
        refuse_unsupported(given)
        try:
            model = cls.build(given, task)
            swap_linear(model)
        except ValueError as error:
            raise UserError(f"cannot build the model: {error}") from error
        return model

    @classmethod
    def build(cls, given: dict[str, Any], task: Any) -> HeadModel:
        """What :meth:`build_model` builds, from plain options.

        Raises:
            ValueError: an option's value makes no sense; the message names it.
        """
        raise NotImplementedError

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        *others: Any,
    ) -> None:
        # torch calls this for the whole model before it copies the first weight.
        check_weights(self, state_dict, prefix, strict)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *others)


def refuse_unsupported(options: Mapping[str, Any]) -> None:
    """Refuse options that do not work with our attention.

    Raises:
        UserError: names the first that is set.
    """
    for option, why in _UNSUPPORTED.items():
        if options.get(option):
            raise UserError(f"{why}: leave the option out")


class HeadTransformer(HeadModel, TransformerModelBase):
    """An encoder-decoder transformer whose attention is one of ours.

    A variant defines :meth:`attention_builder`.
    """

    @classmethod
    def add_args(cls, parser: Any) -> None:
        # TransformerModelBase adds its nested options; ours are flat, and come from the dataclass.
        super(TransformerModelBase, cls).add_args(parser)

    @classmethod
    def attention_builder(cls, cfg: TransformerConfig) -> AttentionBuilder:
        """What builds the attention of each site, from the model's options.

        Raises:
            ValueError: an option's value makes no sense; the message names it.
        """
        raise NotImplementedError

    @classmethod
    def build(cls, given: dict[str, Any], task: Any) -> HeadModel:
        for name in ("decoder_input_dim", "decoder_output_dim"):
            if given[name] is None:
                given[name] = given["decoder_embed_dim"]
        config = TransformerConfig.from_namespace(Namespace(**given))
        config.attention_builder = cls.attention_builder(config)
        return super(HeadModel, cls).build_model(config, task)  # fairseq's, from nested options

    @classmethod
    def build_encoder(cls, cfg: TransformerConfig, src_dict: Any, embed: nn.Embedding) -> Encoder:
        return Encoder(cfg, src_dict, embed)

    @classmethod
    def build_decoder(cls, cfg: TransformerConfig, tgt_dict: Any, embed: nn.Embedding) -> Decoder:
        return Decoder(cfg, tgt_dict, embed)

    def set_beam_size(self, beam_size: int) -> None:
        """Called by fairseq's generators: let the beams of a sentence share its encoder output."""
        self.encoder.beams_share_output = beam_size > 1


def register_presets(arch: str, model: type[HeadTransformer], options: type) -> None:
    """Register ``model`` once for each of :data:`PRESET_SIZES`, with defaults of these sizes.

    The names (``arch``, ``arch_iwslt_de_en``, ...) work for ``--arch`` and as ``model._name``.
    """
    for suffix, sizes in PRESET_SIZES.items():
        dataclass = preset(options, f"{options.__name__}{suffix}", **sizes)
        variant = type(f"{model.__name__}{suffix}", (model,), {"__module__": model.__module__})
        register_model(f"{arch}{suffix}", dataclass=dataclass)(variant)
