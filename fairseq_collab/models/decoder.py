"""fairseq's transformer decoder with our layers; its work once per step for all of them.

Shapes:
    B  sentences    beam  hypotheses a sentence    rows  B * beam, sentence by sentence
    S  source length    d  model size    H  heads

Between embedding and output layer, a step of decoding is laid out as ``(beam, B, d)``: the beams of
a sentence are laid out as query positions are in training, and attentions need not know of them.
"""

from __future__ import annotations

from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from torch import Tensor, nn

from fairseq_collab.attention.cache import (
    BeamHistory,
    IncrementalState,
    beam_history,
    fold_beams,
    has_beam_history,
    start_beam_history,
    unfold_beams,
)
from fairseq_collab.decoding.fixed_steps import POSITION
from fairseq_collab.models.checks import register_dictionary_signature
from fairseq_collab.models.layers import DecoderLayer, name_dropout, wrap_layer

EncoderOut = dict[str, list[Tensor]]


class Decoder(TransformerDecoderBase):
    """fairseq's decoder with our layers."""

    #: Layers built so far: fairseq asks for one after the other, without its index.
    layers_built = 0

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding):
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=cfg.no_cross_attention)
        name_dropout(self, "TransformerDecoder")
        register_dictionary_signature(self, dictionary)

    # ---- building --------------------------------------------------------------------------------

    def build_decoder_layer(
        self, cfg: TransformerConfig, no_encoder_attn: bool = False
    ) -> nn.Module:
        layer = DecoderLayer(cfg, self.layers_built, no_encoder_attn)
        self.layers_built += 1
        return wrap_layer(layer, cfg)

    # ---- running ---------------------------------------------------------------------------------

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut | None = None,
        incremental_state: IncrementalState | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Do what fairseq's method does, but without attention weights in training.

        In evaluation the weights are those of the last layer, unless ``alignment_layer`` chooses
        another one.  ``attn`` is None, where fairseq has ``[None]``, if no weights were computed:
        ``SequenceScorer`` sums this entry over an ensemble and fails on a list of None.  In
        training it is None without ``alignment_layer``, so that
        ``label_smoothed_cross_entropy_with_alignment`` cannot train these models.
        """
        if alignment_layer is None:
            none = self.num_layers
            alignment_layer = none if self.training else self.num_layers - 1
        if incremental_state is not None:
            return self._step(
                prev_output_tokens, encoder_out, incremental_state, alignment_layer, alignment_heads
            )
        which = (full_context_alignment, alignment_layer, alignment_heads)
        x, extra = super().extract_features(prev_output_tokens, encoder_out, None, *which)
        if extra["attn"][0] is None:
            extra["attn"] = None
        return x, extra

    def _step(
        self,
        tokens: Tensor,
        encoder_out: EncoderOut | None,
        state: IncrementalState,
        alignment_layer: int,
        alignment_heads: int | None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the features ``(rows, 1, d)`` of the last of ``tokens (rows, steps so far)``.

        ``inner_states`` are ``(beam, B, d)``, where fairseq has ``(1, rows, d)``.
        """
        source = encoder_out["encoder_out"][0] if encoder_out else None  # (S, B, d)
        padding = next(iter(encoder_out["encoder_padding_mask"] if encoder_out else []), None)
        x = self._embed_last(tokens, state).transpose(0, 1)  # (1, rows, d)
        history = self._extend_history(tokens[:, -1:], source, state, x)
        x = fold_beams(x, history.beam)  # (beam, B, d)
        inner_states, attn = [x], None
        for index, layer in enumerate(self.layers):
            need_weights = index == alignment_layer
            x, weights, _ = layer(
                x, source, padding, state, need_attn=need_weights, need_head_weights=need_weights
            )
            inner_states.append(x)
            if need_weights and weights is not None:  # (H, B, beam, S)
                attn = weights[:alignment_heads].mean(0).flatten(0, 1).unsqueeze(1).to(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = unfold_beams(x).transpose(0, 1)  # (rows, 1, d)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attn], "inner_states": inner_states}

    def _embed_last(self, tokens: Tensor, state: IncrementalState) -> Tensor:
        """Embed the last token and its position: ``(rows, steps so far) -> (rows, 1, d)``."""
        x = self.embed_scale * self.embed_tokens(tokens[:, -1:])
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if POSITION in state:
            x = x + state[POSITION]["embedding"]
        elif self.embed_positions is not None:
            x = x + self.embed_positions(tokens, incremental_state=state)[:, -1:]
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)  # --retain-dropout keeps it on

    def _extend_history(
        self, last_tokens: Tensor, source: Tensor | None, state: IncrementalState, like: Tensor
    ) -> BeamHistory:
        """Extend the beam history by this step, once for the self-attentions of all layers."""
        if not has_beam_history(state):
            rows = last_tokens.size(0)
            start_beam_history(state, rows if source is None else source.size(1), rows, like)
        history = beam_history(state)
        history.extend(last_tokens.eq(self.padding_idx))
        return history

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> None:
        """Reorder the beam history; fairseq calls this before the same method of the attentions."""
        if has_beam_history(incremental_state):
            history = beam_history(incremental_state)
            history.reorder(new_order, history.moved_sentences(new_order))
