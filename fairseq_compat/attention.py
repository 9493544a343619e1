"""Attention that fairseq's layers really call, with weights that are really per head."""

from __future__ import annotations

import functools
from typing import Any


def call_self_attention_in_evaluation() -> None:
    """Close the encoder layer's way around its own `self_attn`.

    Once its weights were loaded from a checkpoint, an encoder layer in evaluation mode hands
    copies of the *stock* weights to `torch._transformer_encoder_layer_fwd`: a custom
    attention is ignored without a word, and torch 2 raises "Mask Type should be defined" for
    a padded batch. The encoder asks the same flag before it makes nested tensors. Later
    versions of fairseq have removed this path.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    original = TransformerEncoderLayerBase.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.can_use_fastpath = False

    TransformerEncoderLayerBase.__init__ = __init__


def return_weights_per_head() -> None:
    """Keep a call that wants head weights away from torch's attention function.

    That function knows only the average over heads, of shape (B, T, S) instead of
    (H, B, T, S). `static_kv` leads to fairseq's own code; without an incremental state it has
    no other meaning. `forward` is left alone, because TorchScript compiles its source.
    """
    from fairseq.modules import MultiheadAttention

    plain_call = MultiheadAttention.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("need_head_weights") and kwargs.get("incremental_state") is None:
            kwargs["static_kv"] = True
        return plain_call(self, *args, **kwargs)

    MultiheadAttention.__call__ = __call__
