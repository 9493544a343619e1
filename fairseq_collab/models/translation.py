"""Encoder-decoder models with our heads, each beside fairseq's ``transformer``."""

from __future__ import annotations

from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerModel, TransformerModelBase
from torch import nn

from collab_common.errors import UserError
from fairseq_collab.models.base import Family, HeadModel
from fairseq_collab.models.config import PRESET_SIZES, TransformerOptions
from fairseq_collab.models.decoder import Decoder
from fairseq_collab.models.layers import Encoder
from fairseq_collab.search.seam import search


class HeadTransformer(HeadModel, TransformerModelBase):
    """An encoder-decoder transformer whose attention is one of ours."""

    @classmethod
    def build(cls, given: dict[str, Any], task: Any) -> HeadModel:
        # After HeadModel's in the order of classes comes fairseq's, which takes nested options.
        model = super(HeadModel, cls).build_model(cls.nested(given), task)
        # A criterion tells the model nothing; fairseq's alignment loss needs this task option.
        model.decoder.aligns = getattr(getattr(task, "cfg", None), "load_alignments", False)
        return model

    @classmethod
    def build_encoder(cls, cfg: TransformerConfig, src_dict: Any, embed: nn.Embedding) -> Encoder:
        return Encoder(cfg, src_dict, embed)

    @classmethod
    def build_decoder(cls, cfg: TransformerConfig, tgt_dict: Any, embed: nn.Embedding) -> Decoder:
        return Decoder(cfg, tgt_dict, embed)

    def make_generation_fast_(self, need_attn: Any = False, **options: Any) -> None:
        """Called by fairseq before it translates: are attention weights to be printed?

        Not of a language model beside the translation model, which is told the same.

        Raises:
            UserError: they are, and the last layer attends to no source.
        """
        if need_attn and not self.decoder.has_aligning_heads():
            raise UserError(
                "the last layer of the decoder has no heads that attend to the source",
                "--print-alignment",
                "leave the option out",
            )
        super().make_generation_fast_(need_attn=need_attn, **options)

    def set_beam_size(self, beam_size: int) -> None:
        """Called by fairseq's generators: let the beams of a sentence share its encoder output."""
        self.encoder.beams_share_output = beam_size > 1

    def search(self, generator: Any, sample: Any, **arguments: Any) -> Any:
        """Called by fairseq's generators (``fairseq_compat``) in place of their own search.

        Returns:
            What ``generator.generate([self], sample, **arguments)`` gives; None where that is no
            plain beam search.
        """
        return search(generator, sample, **arguments)


TRANSLATION = Family(
    "transformer_",
    HeadTransformer,
    TransformerOptions,
    PRESET_SIZES,
    stock=(TransformerModel, TransformerModelBase),
)
