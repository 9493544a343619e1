"""fairseq's models with our heads: encoder-decoder models for translation, language models.

The options are those of fairseq's own model and of the variant.  A language model has no encoder,
so options of the encoder and of cross-attention are left out.
"""

# Optional: fairseq reads the fields' types, and knows no other spelling.
# ruff: noqa: UP045
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import make_dataclass
from typing import Any, Optional

from fairseq import options as fairseq_options
from fairseq.models import FairseqLanguageModel
from fairseq.models.transformer import (
    Embedding,
    TransformerConfig,
    TransformerModel,
    TransformerModelBase,
)
from fairseq.models.transformer_lm import (
    DEFAULT_MAX_TARGET_POSITIONS,
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
)
from fairseq.modules import AdaptiveInput
from torch import nn

from fairseq_collab.decoding.beam_search import search
from fairseq_collab.models.base import Family, HeadModel
from fairseq_collab.models.decoder import Decoder
from fairseq_collab.models.layers import Encoder
from fairseq_collab.models.options import PRESET_SIZES, TransformerOptions, fairseq_values, option


class HeadTransformer(HeadModel, TransformerModelBase):
    """An encoder-decoder transformer whose attention is one of ours."""

    @classmethod
    def build(cls, options: dict[str, Any], task: Any) -> HeadModel:
        # After HeadModel's in the order of classes comes fairseq's, which takes nested options.
        return super(HeadModel, cls).build_model(cls.nested(options), task)

    @classmethod
    def build_encoder(cls, cfg: TransformerConfig, src_dict: Any, embed: nn.Embedding) -> Encoder:
        return Encoder(cfg, src_dict, embed)

    @classmethod
    def build_decoder(cls, cfg: TransformerConfig, tgt_dict: Any, embed: nn.Embedding) -> Decoder:
        return Decoder(cfg, tgt_dict, embed)

    def search(self, generator: Any, sample: Any, **arguments: Any) -> Any:
        """Search; fairseq's generators (``fairseq_compat``) call this instead of their own search.

        Returns:
            The result of ``generator.generate([self], sample, **arguments)``; None if the call is
            not plain beam search.
        """
        return search(generator, sample, **arguments)


TRANSLATION = Family(
    "transformer_",
    HeadTransformer,
    TransformerOptions,
    PRESET_SIZES,
    stock=(TransformerModel, TransformerModelBase),
)


# ---- language models ----------------------------------------------------------------------------

#: fairseq's options of a language model.  Inputs and outputs have the model's dimension unless
#: given: fairseq's own default is 512 whatever the model's.
LanguageModelOptions = make_dataclass(
    "LanguageModelOptions",
    [
        (name, Optional[int], option(None, f"{meaning} (default: model's)"))
        for name, meaning in (
            ("decoder_input_dim", "decoder input dimension"),
            ("decoder_output_dim", "decoder output dimension"),
        )
    ],
    bases=(TransformerLanguageModelConfig,),
)
#: fairseq's own presets, by the ending of the architecture's name (``transformer_lm_gpt``, ...).
_PRESETS = ("_big", "_wiki103", "_gbw", "_gpt", "_gpt2_tiny", "_gpt2_small", "_gpt2_medium")
_SIZES: dict[str, dict[str, Any]] = {"": {}} | {
    ending: fairseq_values(f"transformer_lm{ending}", LanguageModelOptions) for ending in _PRESETS
}


class HeadLanguageModel(HeadModel, FairseqLanguageModel):
    """A decoder-only transformer whose attention is one of ours."""

    @classmethod
    def build(cls, options: dict[str, Any], task: Any) -> HeadLanguageModel:
        if options["max_target_positions"] is None:
            options["max_target_positions"] = (
                options["tokens_per_sample"] or DEFAULT_MAX_TARGET_POSITIONS
            )
        check_tied(options)
        config = cls.nested({**options, "no_cross_attention": True})
        embedding = input_embedding(options, task.source_dictionary)
        return cls(Decoder(config, task.target_dictionary, embedding))


def input_embedding(options: Mapping[str, Any], dictionary: Any) -> Any:
    """Build the embedding ``(B, T) -> (B, T, d)`` of words, with one size or with adaptive sizes.

    It has ``embedding_dim`` and ``padding_idx``, which fairseq's decoder reads.
    """
    if options["adaptive_input"]:
        return AdaptiveInput(
            len(dictionary),
            dictionary.pad(),
            options["decoder_input_dim"],
            options["adaptive_input_factor"],
            options["decoder_embed_dim"],
            fairseq_options.eval_str_list(options["adaptive_input_cutoff"], type=int),
        )
    return Embedding(len(dictionary), options["decoder_input_dim"], dictionary.pad())


def check_tied(options: Mapping[str, Any]) -> None:
    """Raise ValueError for adaptive inputs and outputs that share weights but differ in a size."""
    pairs = (
        ("adaptive_input_factor", "adaptive_softmax_factor"),
        ("adaptive_input_cutoff", "adaptive_softmax_cutoff"),
        ("decoder_input_dim", "decoder_output_dim"),
    )
    differ = [pair for pair in pairs if options[pair[0]] != options[pair[1]]]
    if options["tie_adaptive_weights"] and (differ or not options["adaptive_input"]):
        names = " and ".join(f"--{name.replace('_', '-')}" for name in (differ or pairs)[0])
        raise ValueError(f"--tie-adaptive-weights needs --adaptive-input, and equal {names}")


LANGUAGE_MODEL = Family(
    "transformer_lm_",
    HeadLanguageModel,
    LanguageModelOptions,
    _SIZES,
    stock=(TransformerLanguageModel,),
    absent=("encoder", "cross"),
    ignored=("scale_attn", "scale_fc", "scale_heads", "scale_resids"),
)
