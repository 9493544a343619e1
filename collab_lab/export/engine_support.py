"""What engines that translate can compute of a model, and how an export differs from the model."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from fairseq.models.transformer import TransformerModelBase
from torch import nn

from collab_common.errors import UserError
from collab_lab.export.plain import check_function, check_source, inexact, stock_heads
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.trained.attentions import by_type, check_known, of_one_model
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.models.layers import is_copy

#: Formats with one size of everything, for which zeros fill up smaller models.
FILLED = ("fairseq", "hf")
#: The weights of an engine's transformer by fairseq's names, and state that is none.
_OF_ENGINES = re.compile(
    r"(encoder|decoder)\.((embed_tokens|embed_positions)\.weight|version|"
    r"embed_positions\._float_tensor|layers\.\d+\.(self|encoder)_attn\..+|(layernorm_embedding|"
    r"layer_norm|layers\.\d+\.(fc[12]|(self_attn|encoder_attn|final)_layer_norm))\.(weight|bias))"
    r"|decoder\.output_projection\.weight"
)


def check_engine(
    trained: Trained, engine: str, activations: Collection[str], post_norm_only: bool = False
) -> None:
    """Raise UserError if options of the model ask for something that ``engine`` cannot compute.

    Args:
        activations: the activation functions that the engine supports, by fairseq's names.
        post_norm_only: whether the engine only supports norms after each block.
    """
    check_source(trained)
    todo = "--format fairseq supports it"
    model = trained.model
    if not isinstance(model, TransformerModelBase):
        raise inexact(trained, f"a {type(model).__name__} does not translate", todo)
    cfg = model.encoder.cfg
    dims = (cfg.encoder.embed_dim, cfg.decoder.embed_dim)
    pre_norm = cfg.encoder.normalize_before or cfg.decoder.normalize_before
    without_cross = cfg.no_cross_attention or cfg.cross_self_attention
    unsupported = {
        "--no-cross-attention, --cross-self-attention": without_cross,
        f"two sizes of encoder and decoder ({dims[0]} and {dims[1]})": dims[0] != dims[1],
        "--no-token-positional-embeddings": cfg.no_token_positional_embeddings,
        "--quant-noise-scalar": cfg.quant_noise.scalar,
        f"--activation-fn {cfg.activation_fn}": str(cfg.activation_fn) not in activations,
        "--encoder-normalize-before, --decoder-normalize-before": post_norm_only and pre_norm,
        "--layernorm-embedding": post_norm_only and cfg.layernorm_embedding,
    }
    for feature, present in unsupported.items():
        if present:
            raise inexact(trained, f"{engine} does not support {feature}", todo)
    check_function(trained)


def check_all_read(model: nn.Module, engine: str) -> None:
    """Raise UserError if the model has a weight that ``engine`` cannot use."""
    check_known(model)
    for name in model.state_dict():
        if not (_OF_ENGINES.fullmatch(name) or of_one_model(name) or is_copy(name)):
            raise UserError(f"no exact export: {engine} cannot use the weight {name}")


def attending_heads(model: nn.Module) -> int:
    """The number of heads of the last cross-attention, whose mean is fairseq's attention of a word.

    It is 0 without cross-attention.
    """
    layers = by_type(model)["cross"]
    return int(layers[-1].module.num_heads) if layers else 0


def other_attention(trained: Trained, format_: str) -> str | None:
    """Why the mean attention over heads differs from the model's in a format; None if it does not.

    It is equal if the additional heads repeat each of the model's heads equally often.
    """
    own = attending_heads(trained.model)
    if not own:
        return "attention to words: none, as the last layer has no cross-attention"
    if format_ in FILLED and (heads := stock_heads(trained, "decoder")) % own:
        filled = f"the last layer has {own} heads, here filled up to {heads} by even attention"
        return f"attention to words: flatter, in the same order ({filled}; ct2 keeps the mean)"
    return None


def longest_output(model: Any, source: int) -> int:
    """The number of tokens of the longest translation, without ``</s>``.

    Args:
        source: number of tokens of the longest source in the batch, with ``</s>``.
    """
    by_source = LENGTH_LIMIT["max_len_a"] * source + LENGTH_LIMIT["max_len_b"]
    return min(by_source, most_tokens(model))


def most_tokens(model: Any) -> int:
    """The most tokens of a translation that the model has positions for, without ``</s>``."""
    return int(model.max_decoder_positions()) - 1


def most_source_tokens(trained: Trained) -> int:
    """How many tokens, with ``</s>``, ``--truncate-source`` leaves of a source; 0 without it."""
    task: Any = trained.cfg.task
    cuts = getattr(task, "truncate_source", False) and not trained.is_language_model
    return int(task.max_source_positions) if cuts else 0
