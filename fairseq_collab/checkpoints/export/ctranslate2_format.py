"""A model as CTranslate2 reads it (https://github.com/OpenNMT/CTranslate2).

CTranslate2 has a converter for fairseq of its own; it wants the options in ``checkpoint["args"]``,
where fairseq has had none since 0.10, and knows none of our architectures.  So the specification is
filled here, weight by weight.

Its heads may have any size.  So every model of this project can be exported exactly, whatever its
key dimension: heads then are as large as the largest needs (K, with collaborative heads; their
values are filled up with zeros), and products with them cost accordingly.
"""

from __future__ import annotations

from argparse import Namespace
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
from fairseq_collab.checkpoints.attentions import attentions
from fairseq_collab.checkpoints.export.attention import plain_weights, smallest_size
from fairseq_collab.checkpoints.export.model import common_heads
from fairseq_collab.checkpoints.export.translation import (
    Vocabulary,
    check,
    position_table,
    vocabulary,
    whole_folder,
)
from fairseq_collab.checkpoints.opener import Trained

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "swish": common_spec.Activation.SWISH,
    "tanh": common_spec.Activation.Tanh,
}
#: Maps of an attention with the same input, which CTranslate2 keeps as one.
_JOINED = {
    "self_attn": (("q_proj", "k_proj", "v_proj"), ("out_proj",)),
    "encoder_attn": (("q_proj",), ("k_proj", "v_proj"), ("out_proj",)),
}


class Linear(NamedTuple):
    """A linear map: ``weight (out, in)`` and ``bias (out)``."""

    weight: Tensor
    bias: Tensor


def export(trained: Trained, args: Namespace) -> None:
    """A folder for ``ctranslate2.Translator``."""
    check(trained, "CTranslate2", ACTIVATIONS)
    write(trained, vocabulary(trained, args), args.out)


def write(trained: Trained, words: Vocabulary, out: Path) -> None:
    """Write the folder; never half of it.

    Args:
        trained: a transformer, ours or fairseq's, as :func:`.translation.check` lets through.
    """
    spec = specification(trained, words)
    spec.validate()
    spec.optimize()
    with whole_folder(out) as folder:
        spec.save(str(folder))


def specification(trained: Trained, words: Vocabulary) -> TransformerSpec:
    """All weights, in CTranslate2's layout."""
    encoder = _stack(TransformerEncoderSpec, trained, "encoder")
    decoder = _stack(TransformerDecoderSpec, trained, "decoder")
    _set_linear(decoder.projection, trained.model.decoder.output_projection)
    spec = TransformerSpec(encoder, decoder)
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


def _stack(kind: Any, trained: Trained, side: str) -> Any:
    """The specification of encoder or decoder: its layers, embeddings, positions and norms."""
    stack = getattr(trained.model, side)
    size = head_size(trained, side)
    spec = kind(
        len(stack.layers),
        common_heads(trained, side),
        head_dim=size,
        pre_norm=getattr(stack.cfg, side).normalize_before,
        activation=ACTIVATIONS[str(stack.cfg.activation_fn)],
        layernorm_embedding=stack.layernorm_embedding is not None,
        no_final_norm=stack.layer_norm is None,
    )
    embeddings = spec.embeddings[0] if side == "encoder" else spec.embeddings
    embeddings.weight = _numpy(stack.embed_tokens.weight)
    spec.scale_embeddings = np.dtype("float32").type(stack.embed_scale)
    spec.position_encodings.encodings = _numpy(position_table(stack))
    for norm in ("layer_norm", "layernorm_embedding"):
        if getattr(stack, norm) is not None:
            _set_norm(getattr(spec, norm), getattr(stack, norm))
    for target, layer in zip(spec.layer, stack.layers, strict=True):
        _set_attention(target.self_attention, layer, "self_attn", size)
        if side == "decoder":
            _set_attention(target.attention, layer, "encoder_attn", size)
        _set_linear(target.ffn.linear_0, layer.fc1)
        _set_linear(target.ffn.linear_1, layer.fc2)
        _set_norm(target.ffn.layer_norm, layer.final_layer_norm)
    return spec


def head_size(trained: Trained, side: str) -> int:
    """The size that the heads of all layers of a stack take: that of the largest."""
    return max(
        smallest_size(one.module)
        if isinstance(one.module, HeadAttention)
        else one.module.head_dim  # fairseq's own
        for one in attentions(trained.model)
        if one.name.startswith(f"{side}.")
    )


def _set_attention(
    spec: attention_spec.MultiHeadAttentionSpec, layer: Any, name: str, size: int
) -> None:
    """Queries, keys, values and output of an attention, with heads of ``size``."""
    module = getattr(layer, name)
    ours = isinstance(module, HeadAttention)
    weights = plain_weights(module, size) if ours else module.state_dict()
    for target, joined in zip(spec.linear, _JOINED[name], strict=True):
        maps = [Linear(weights[f"{one}.weight"], weights[f"{one}.bias"]) for one in joined]
        _set_linear(target, *maps)
    _set_norm(spec.layer_norm, getattr(layer, f"{name}_layer_norm"))


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()


def _set_linear(spec: common_spec.LinearSpec, *maps: Linear | nn.Linear) -> None:
    """One map in place of several with the same input: their rows, one after the other."""
    spec.weight = np.concatenate([_numpy(one.weight) for one in maps])
    biases = [_numpy(one.bias) for one in maps if one.bias is not None]
    if biases:
        spec.bias = np.concatenate(biases)


def _set_norm(spec: common_spec.LayerNormSpec, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numpy(norm.weight), _numpy(norm.bias)
