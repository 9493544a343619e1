"""A model as CTranslate2 reads it (https://github.com/OpenNMT/CTranslate2).

CTranslate2 has a converter for fairseq of its own; it wants the options in ``checkpoint["args"]``,
where fairseq has had none since 0.10, and knows none of our architectures.  So the specification is
filled here, weight by weight.

Its heads may have any size.  So every model of this project can be exported exactly, whatever its
key dimension: heads then are as large as the largest needs (K, with collaborative heads; their
values are filled up with zeros), and products with them cost accordingly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ctranslate2.specs import (
    TransformerDecoderSpec,
    TransformerEncoderSpec,
    TransformerSpec,
    attention_spec,
    common_spec,
)
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_collab.attention import HeadAttention
from fairseq_collab.checkpoints.export.attention import plain_weights, smallest_size
from fairseq_collab.checkpoints.export.files import Vocabulary, position_table, whole_folder
from fairseq_collab.checkpoints.export.model import common_heads

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "swish": common_spec.Activation.SWISH,
    "tanh": common_spec.Activation.Tanh,
}


ATTENTIONS = ("self_attn", "encoder_attn")


class Linear(NamedTuple):
    """A linear map: ``weight (out, in)`` and ``bias (out)``."""

    weight: Tensor
    bias: Tensor


def write(model: Any, words: Vocabulary, out: Path, path: Path) -> None:
    """Write the folder that ``ctranslate2.Translator`` takes; never half of it.

    Args:
        model: a transformer, ours or fairseq's, as :func:`export_requirements.check` lets through.
        path: of its checkpoint, for messages.

    Raises:
        UserError: layers with different numbers of heads.
    """
    spec = specification(model, words, path)
    spec.validate()
    spec.optimize()
    with whole_folder(out) as folder:
        spec.save(str(folder))


def specification(model: Any, words: Vocabulary, path: Path) -> TransformerSpec:
    """All weights, in CTranslate2's layout."""
    spec = TransformerSpec(
        encoder_spec(model.encoder, common_heads(model, "encoder", path)),
        decoder_spec(model.decoder, common_heads(model, "decoder", path)),
    )
    spec.register_source_vocabulary(symbols(words.source))
    spec.register_target_vocabulary(symbols(words.target))
    # fairseq ends a source with </s>, and starts a target with it, too.
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = words.target.eos_word
    spec.config.unk_token = words.target.unk_word
    return spec


def symbols(dictionary: Dictionary) -> list[str]:
    """The words by index; CTranslate2 calls padding ``<blank>``."""
    return ["<blank>" if word == dictionary.pad_word else word for word in dictionary.symbols]


def encoder_spec(encoder: Any, heads: int) -> TransformerEncoderSpec:
    size = head_size(encoder)
    spec = TransformerEncoderSpec(
        len(encoder.layers),
        heads,
        head_dim=size,
        pre_norm=encoder.cfg.encoder.normalize_before,
        activation=ACTIVATIONS[str(encoder.cfg.activation_fn)],
        layernorm_embedding=encoder.layernorm_embedding is not None,
    )
    _set_stack(spec, spec.embeddings[0], encoder)
    for target, layer in zip(spec.layer, encoder.layers, strict=True):
        _set_self_attention(target.self_attention, layer, size)
        _set_feed_forward(target.ffn, layer)
    return spec


def decoder_spec(decoder: Any, heads: int) -> TransformerDecoderSpec:
    size = head_size(decoder)
    spec = TransformerDecoderSpec(
        len(decoder.layers),
        heads,
        head_dim=size,
        pre_norm=decoder.cfg.decoder.normalize_before,
        activation=ACTIVATIONS[str(decoder.cfg.activation_fn)],
        layernorm_embedding=decoder.layernorm_embedding is not None,
        no_final_norm=decoder.layer_norm is None,
    )
    _set_stack(spec, spec.embeddings, decoder)
    _set_linear(spec.projection, decoder.output_projection)
    for target, layer in zip(spec.layer, decoder.layers, strict=True):
        _set_self_attention(target.self_attention, layer, size)
        _set_cross_attention(target.attention, layer, size)
        _set_feed_forward(target.ffn, layer)
    return spec


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()


def _set_stack(spec: Any, embeddings: common_spec.EmbeddingsSpec, stack: Any) -> None:
    embeddings.weight = _numpy(stack.embed_tokens.weight)
    spec.scale_embeddings = np.dtype("float32").type(stack.embed_scale)
    spec.position_encodings.encodings = _numpy(position_table(stack))
    if stack.layer_norm is not None:
        _set_norm(spec.layer_norm, stack.layer_norm)
    if stack.layernorm_embedding is not None:
        _set_norm(spec.layernorm_embedding, stack.layernorm_embedding)


def _set_self_attention(spec: attention_spec.MultiHeadAttentionSpec, layer: Any, size: int) -> None:
    heads = projections(layer.self_attn, size)
    _set_linear(spec.linear[0], heads["q_proj"], heads["k_proj"], heads["v_proj"])
    _set_linear(spec.linear[1], heads["out_proj"])
    _set_norm(spec.layer_norm, layer.self_attn_layer_norm)


def _set_cross_attention(
    spec: attention_spec.MultiHeadAttentionSpec, layer: Any, size: int
) -> None:
    heads = projections(layer.encoder_attn, size)
    _set_linear(spec.linear[0], heads["q_proj"])
    _set_linear(spec.linear[1], heads["k_proj"], heads["v_proj"])
    _set_linear(spec.linear[2], heads["out_proj"])
    _set_norm(spec.layer_norm, layer.encoder_attn_layer_norm)


def head_size(stack: Any) -> int:
    """The size that the heads of all layers of a stack take: that of the largest."""
    attentions = [getattr(layer, name, None) for layer in stack.layers for name in ATTENTIONS]
    return max(
        smallest_size(attention) if isinstance(attention, HeadAttention) else attention.head_dim
        for attention in attentions
        if attention is not None
    )


def projections(attention: Any, size: int) -> dict[str, Linear]:
    """Queries, keys, values and output of an attention, with heads of ``size``."""
    if isinstance(attention, HeadAttention):
        weights = plain_weights(attention, size)
    else:
        weights = attention.state_dict()
    return {
        name: Linear(weights[f"{name}.weight"], weights[f"{name}.bias"])
        for name in ("q_proj", "k_proj", "v_proj", "out_proj")
    }


def _set_feed_forward(spec: Any, layer: Any) -> None:
    _set_linear(spec.linear_0, layer.fc1)
    _set_linear(spec.linear_1, layer.fc2)
    _set_norm(spec.layer_norm, layer.final_layer_norm)


def _set_linear(spec: common_spec.LinearSpec, *maps: Linear | nn.Linear) -> None:
    """One map in place of several with the same input: their rows, one after the other."""
    spec.weight = np.concatenate([_numpy(one.weight) for one in maps])
    biases = [_numpy(one.bias) for one in maps if one.bias is not None]
    if biases:
        spec.bias = np.concatenate(biases)


def _set_norm(spec: common_spec.LayerNormSpec, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numpy(norm.weight), _numpy(norm.bias)
